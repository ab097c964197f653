"""All turns that run in the host: each goes from its plan to its stored end in one coroutine of its own."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo.errors import OctavoError, RequestRejectedError
from octavo.host.bookkeeping import Plan, begin, busy_error, plan_new, plan_next
from octavo.host.connection import Connection
from octavo.host.engine_thread import EngineThread
from octavo.host.live_turn import Follower, LiveTurn
from octavo.host.owed_ends import OwedEnds
from octavo.host.store_thread import StoreThread
from octavo.host.titles import Titles
from octavo.launcher import HostSpec
from octavo.protocol import Rejected, Submit, Watch
from octavo_data import ChatMovedError, ChatTrashedError, StoreError, TurnClosedError, TurnStatus
from octavo_engine.errors import ChatFormatError, EngineError, RequestRefusedError
from octavo_engine.events import Event, Finished, StopReason
from octavo_engine.loaded import Loaded
from octavo_engine.messages import Prompt
from octavo_engine.params import SamplingParams

log = logging.getLogger(__name__)

FLUSH_S = 1.0
NUM_TRIES = 3  # to add a turn to a chat that other hosts add to at the same moment
_STOPPED = RequestRejectedError(
    "The request was stopped before it began", "Nothing of it is stored; send it again if you like."
)
_STATUS = {StopReason.FAILED: TurnStatus.FAILED, StopReason.ABORTED: TurnStatus.STOPPED}

_REMEDIES: dict[type[EngineError], str] = {  # a ParameterError names the range itself
    RequestRefusedError: "Send less, or begin a new chat.",
    ChatFormatError: "Begin a new chat, or take another model.",
}


@dataclass(slots=True, eq=False)
class _Running:
    """A turn and the coroutine that takes it to its end; `is_preparing` until something of it may be stored."""

    turn: LiveTurn
    submit: Submit
    task: "asyncio.Task[None] | None" = None
    is_preparing: bool = True


@dataclass(slots=True)
class Turns:
    """Runs and stores turns, and lets clients follow and stop them."""

    spec: HostSpec  # its key is the host's name in the store
    store: StoreThread
    engine: EngineThread
    titles: Titles
    on_idle: Callable[[], None]  # the last turn is over
    _running: dict[str, _Running] = field(default_factory=dict)
    _num_requests: int = 0
    _is_closing: bool = False
    _refusal: OctavoError = _STOPPED  # what those hear whose turn is ended before it began
    _owed: OwedEnds = field(init=False)

    def __post_init__(self) -> None:
        self._owed = OwedEnds(self.store)

    @property
    def is_busy(self) -> bool:
        """Whether any turn is on its way, to its end or with that to the store, or the title of a chat."""
        return bool(self._running or self._owed.endings) or self.titles.is_busy

    def submit(self, connection: Connection, submit: Submit) -> None:
        """Start a turn; everything that comes of it goes to the client as frames."""
        if self._is_closing:
            refusal = self._refusal
            connection.send(Rejected(request=submit.request, error=refusal.message, remedy=refusal.remedy))
            return
        self._num_requests += 1
        turn = LiveTurn(f"{self._num_requests}")
        turn.follow(Follower(connection, submit.request))
        running = self._running[turn.request_id] = _Running(turn, submit)
        running.task = asyncio.create_task(self._run(running), name=f"turn-{turn.request_id}")
        running.task.add_done_callback(lambda task: self._forget(turn, task))

    def watch(self, connection: Connection, watch: Watch) -> None:
        """Let a client follow the running turn of a chat."""
        for running in self._running.values():
            if running.turn.chat_id == watch.chat_id:
                running.turn.follow(Follower(connection, watch.request))
                return
        error = "No turn of this chat is running here"
        connection.send(Rejected(request=watch.request, error=error, remedy="What was said is stored."))

    def stop(self, connection: Connection, number: int) -> None:
        """End the turn that a client follows under this number."""
        for running in self._all():
            if Follower(connection, number) in running.turn.followers:
                self._stop(running)

    def leave(self, connection: Connection) -> None:
        """A client has gone: its unstored turns end, all others go on."""
        for running in self._all():
            if running.turn.unfollow(connection) and not running.submit.store and not running.turn.followers:
                self._stop(running)

    def on_events(self, events: Sequence[Event]) -> None:
        """One step's events from the engine."""
        for event in events:
            if running := self._running.get(event.request_id):
                running.turn.take(event)
        self.titles.on_events(events)

    async def flush_for_ever(self) -> None:
        """Keep the store about a second behind what was said."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self._pay()
            for running in self._all():
                await self._flush(running.turn)

    async def close(self, reason: StopReason, why: OctavoError) -> None:
        """End all turns with their text kept: as failed, or (ABORTED) as interrupted; those not begun are refused."""
        self._is_closing, self._refusal = True, why
        await self.titles.close()
        running = self._all()
        for one in running:
            if one.is_preparing:
                self._stop(one)
            else:
                one.turn.cut_short(reason, why.message)
        await asyncio.gather(*(one.task for one in running if one.task), return_exceptions=True)
        await self._pay()

    # ---- one turn ----

    async def _run(self, running: _Running) -> None:
        turn = running.turn
        try:
            await self._prepare(running)
            await self._finish(turn, await turn.ended)
            if running.submit.chat_id is None:
                self.titles.begin(turn.chat_id)
        except (OctavoError, StoreError) as error:
            turn.reject(error.message, error.remedy)
        except EngineError as error:
            turn.reject(str(error), _REMEDIES.get(type(error), ""))
        except Exception as error:  # a border: a turn's bug must not take the host along
            log.exception("a turn failed")
            turn.reject(f"The host failed on this request: {error!r}", f"Its log has more: {self.spec.log_file}")

    def _forget(self, turn: LiveTurn, task: "asyncio.Task[None]") -> None:
        """Also called for a task that was cancelled before its first line."""
        if task.cancelled():
            turn.reject(self._refusal.message, self._refusal.remedy)
        del self._running[turn.request_id]
        if not self._running:
            self.on_idle()

    async def _prepare(self, running: _Running) -> None:
        """Everything up to the engine's queue: first what may be refused, then the store, then the client, then it."""
        turn, submit = running.turn, running.submit
        _refuse_unserved(submit.params)
        prompt = await self._stored_prompt(running)
        if prompt.note:
            turn.notice(prompt.note, "")
        turn.announce(len(prompt.token_ids))
        self._add(turn, prompt, submit)

    async def _stored_prompt(self, running: _Running) -> Prompt:
        """The prompt on top of the chat's tip, its turn stored; planned anew when another host was faster."""
        for _ in range(NUM_TRIES - 1):
            with contextlib.suppress(ChatMovedError):
                return await self._try_to_store(running)
        return await self._try_to_store(running)

    async def _try_to_store(self, running: _Running) -> Prompt:
        turn, submit = running.turn, running.submit
        plan = await self._plan(submit)
        if submit.store:
            self._claim(turn, plan)
        prompt = await self.engine.call(lambda loaded: _prompt(loaded, plan, submit.params))
        running.is_preparing = False
        await self._begin(turn, submit, plan, prompt)
        return prompt

    async def _plan(self, submit: Submit) -> Plan:
        if submit.chat_id is None:
            return plan_new(submit.prompt, submit.system)
        await self._pay()
        spec, owed = self.spec, self._owed.endings
        return await self.store.run(plan_next, spec.paths, spec.model, submit.chat_id, submit.prompt, owed)

    def _claim(self, turn: LiveTurn, plan: Plan) -> None:
        """Two requests may have planned at once; the first one has the chat."""
        if plan.chat is None:
            return
        others = (other.turn for other in self._running.values() if other.turn is not turn)
        if any(other.chat_id == plan.chat.id for other in others):
            raise busy_error()
        turn.chat_id = plan.chat.id

    async def _begin(self, turn: LiveTurn, submit: Submit, plan: Plan, prompt: Prompt) -> None:
        if not submit.store:
            return
        try:
            stored = await self.store.run(begin, plan, submit.prompt, prompt, self.spec.key, self.spec.model)
        except (ChatMovedError, ChatTrashedError):
            raise
        except StoreError as error:
            log.warning("a turn cannot be stored: %s", error)
            turn.notice(f"This turn cannot be stored: {error.message}", error.remedy)
        else:
            turn.chat_id, turn.turn_id = stored.chat_id, stored.id

    def _add(self, turn: LiveTurn, prompt: Prompt, submit: Submit) -> None:
        """Not awaited: when the engine breaks down it never answers."""
        session = turn.chat_id or turn.request_id
        added = self.engine.call(
            lambda loaded: loaded.engine.add(
                turn.request_id, prompt.token_ids, submit.params, session=session, is_kept=submit.store
            )
        )
        added.add_done_callback(lambda added: _fail_if_refused(turn, added))
        if turn.is_stopped:
            self.engine.abort(turn.request_id)

    async def _flush(self, turn: LiveTurn) -> None:
        if not turn.has_unflushed or turn.turn_id is None or turn.ended.done():
            return
        turn.has_unflushed = False
        reply, ids = turn.text, tuple(turn.token_ids)
        try:
            await self.store.run(
                lambda store, turn_id: store.flush_turn(turn_id, reply=reply, reply_ids=ids), turn.turn_id
            )
        except TurnClosedError as error:
            log.warning("a flush came too late: %s", error)
        except StoreError as error:
            turn.has_unflushed = True
            log.warning("a turn cannot be flushed: %s", error)
            _tell_unstored(turn, error)

    async def _finish(self, turn: LiveTurn, finished: Finished) -> None:
        """Store the end before the client hears of it, so that whoever looks next finds it."""
        if turn.turn_id is not None:
            status = _STATUS.get(finished.stop_reason, TurnStatus.DONE)
            is_interrupted = finished.stop_reason is StopReason.ABORTED and not turn.is_stopped
            ending = turn.ending(turn.turn_id, TurnStatus.INTERRUPTED if is_interrupted else status, finished)
            if error := await self._owed.write(ending):
                _tell_unstored(turn, error)
        turn.finish(finished)

    async def _pay(self) -> None:
        """Offer the store the ends that it refused; the last one lets the host rest."""
        if self._owed.endings:
            await self._owed.pay()
            if not self.is_busy:
                self.on_idle()

    def _stop(self, running: _Running) -> None:
        running.turn.is_stopped = True
        if running.is_preparing and running.task is not None:
            running.task.cancel()
        else:
            self.engine.abort(running.turn.request_id)

    def _all(self) -> list[_Running]:
        return list(self._running.values())


def _prompt(loaded: Loaded, plan: Plan, params: SamplingParams) -> Prompt:
    """In the step thread: the exact ids, and whether the engine would take them."""
    prompt = loaded.chat_format.prompt(plan.messages, plan.known_ids)
    loaded.engine.check(prompt.token_ids, params)
    return prompt


def _refuse_unserved(params: SamplingParams) -> None:
    """What the engine can do and our frames cannot carry yet."""
    for name, value, only in (("n", params.n, 1), ("logprobs", params.logprobs, None)):
        if value != only:
            raise RequestRejectedError(f"{name} is {value}, which the host does not serve yet", f"Leave {name} out.")


def _fail_if_refused(turn: LiveTurn, added: "asyncio.Future[None]") -> None:
    if not added.cancelled() and (error := added.exception()):
        log.error("a checked request could not be added", exc_info=error)
        turn.cut_short(StopReason.FAILED, f"The engine did not take it: {error}")


def _tell_unstored(turn: LiveTurn, error: StoreError) -> None:
    """The same words at a flush and at the end, so that a person reads them once."""
    turn.notice(f"The reply cannot be stored at the moment: {error.message}", error.remedy)
