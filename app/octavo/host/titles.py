"""Asks the model for the title of a new chat, where the settings want that: behind everything that people ask."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from octavo.errors import OctavoError
from octavo.host.bookkeeping import Plan, plan_next
from octavo.host.engine_thread import EngineThread
from octavo.host.live_turn import LiveTurn
from octavo.host.store_thread import StoreThread
from octavo.launcher import HostSpec
from octavo.paths import Paths
from octavo_data import Store, StoreError, TurnStatus
from octavo_data.titles import from_model
from octavo_engine.errors import EngineError
from octavo_engine.events import Event, StopReason
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams

log = logging.getLogger(__name__)

BACKGROUND = 1  # the engine serves lower numbers first, and a person's request has 0
QUESTION = "Give our conversation a title of two to six words. Answer with the title and nothing else."
PARAMS = SamplingParams(temperature=0.0, max_tokens=32)
_WHOLE = (StopReason.STOP, StopReason.LENGTH)


class Titles:
    """Titles of chats whose first turn is over.

    The question comes behind the chat's own ids, so that its prefix is cached and stays so. It is no turn: nothing of
    it is stored but the title, and that only while the chat still has its first words for one. Whatever goes wrong,
    they stay.
    """

    def __init__(self, spec: HostSpec, store: StoreThread, engine: EngineThread, on_idle: Callable[[], None]) -> None:
        self._spec = spec
        self._store = store
        self._engine = engine
        self._on_idle = on_idle
        self._is_closed = False
        self._live: dict[str, LiveTurn] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a title is on its way."""
        return bool(self._tasks)

    def begin(self, chat_id: str | None) -> None:
        """Ask for the title of a chat; None is an unstored one."""
        if chat_id is not None and self._spec.settings.model_titles and not self._is_closed:
            task = asyncio.create_task(self._run(chat_id), name=f"title-{chat_id}")
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def on_events(self, events: Iterable[Event]) -> None:
        """One step's events from the engine, those of other requests among them."""
        for event in events:
            if live := self._live.get(event.request_id):
                live.take(event)

    async def close(self) -> None:
        """Give up what is on its way, and begin no more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._on_idle()

    async def _run(self, chat_id: str) -> None:
        try:
            await self._ask(chat_id)
        except (OctavoError, StoreError, EngineError) as error:
            log.info("chat %s keeps its first words for a title: %s", chat_id, error)
        except Exception:  # a border: a title is worth no host
            log.exception("a title failed")

    async def _ask(self, chat_id: str) -> None:
        plan = await self._store.run(_plan, self._spec.paths, self._spec.model, chat_id)
        live = LiveTurn(f"title-{chat_id}")
        self._live[live.request_id] = live
        try:
            await self._engine.call(lambda loaded: _add(loaded, live.request_id, plan))
            finished = await live.ended
        finally:
            self._engine.abort(live.request_id)  # when we are cancelled; else it is over, and this does nothing
            del self._live[live.request_id]
        title = from_model(live.text) if finished.stop_reason in _WHOLE else ""
        if title and plan.chat:
            before = plan.chat.title
            await self._store.run(lambda store: store.rename_chat(chat_id, title, instead_of=before))


def _plan(store: Store, paths: Paths, model: str, chat_id: str) -> Plan:
    """In the store thread: the question behind the one turn of the chat. Raises RequestRejectedError, StoreError."""
    plan = plan_next(store, paths, model, chat_id, QUESTION)
    if plan.chat is None or (plan.chat.num_turns, plan.chat.last_status) != (1, TurnStatus.DONE):
        raise OctavoError("The first turn has no end to make a title of, or the chat went on", "")
    return plan


def _add(loaded: Loaded, request_id: str, plan: Plan) -> None:
    """In the step thread. Raises EngineError when it does not fit."""
    prompt = loaded.chat_format.prompt(plan.messages, plan.known_ids)
    loaded.engine.check(prompt.token_ids, PARAMS)
    loaded.engine.add(request_id, prompt.token_ids, PARAMS, session=request_id, priority=BACKGROUND, is_kept=False)
