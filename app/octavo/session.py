"""The live side of a chat, for any user interface: it asks, follows and stops turns, and tells whoever looks.

A session owns its generation: it goes on and is stored whoever looks at it, and a widget only subscribes. All methods
belong to the thread of the event loop. The workspace over all sessions is in `octavo.workspace`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from octavo.changes import (
    Change,
    Noticed,
    SessionState,
    StateChanged,
    TextAppended,
    TitleChanged,
    TurnAdded,
    TurnEnded,
    TurnRefused,
    TurnsReplaced,
)
from octavo.client import Client
from octavo.desk import Desk
from octavo.errors import OctavoError, RequestRejectedError
from octavo.listeners import Listeners
from octavo.protocol import Accepted, Notice, TurnDelta, TurnFinished, TurnPreempted, TurnStarted
from octavo.reply import Reply, ReplyFrame
from octavo.store_errors import naming_store_errors
from octavo.turn_view import TurnView, is_up_to_date
from octavo_data import Chat, StoreError, TurnStatus
from octavo_engine.params import SamplingParams

__all__ = [  # the user interface finds all of it here
    "Callback", "Change", "Noticed", "Session", "SessionState", "StateChanged", "TextAppended", "TitleChanged",
    "TurnAdded", "TurnEnded", "TurnRefused", "TurnView", "TurnsReplaced",
]  # fmt: skip

log = logging.getLogger(__name__)
Callback = Callable[[Change], None]
UNTITLED = "New chat"


class Session:
    """One chat, stored or new: its turns, its unsent draft and the turn that runs.

    Make one through `Workspace.new` or `Workspace.open`. `draft` is the unsent text of the composer: the user
    interface reads it when the session comes into view and writes it as it is typed. `system` (for a new chat only)
    and `params` are used by the next `ask`. `error` is the reason of the state `failed`, "" otherwise, with `remedy`.
    `updated_at` is the time of the last activity in seconds since the epoch. `model` is the one that the chat was begun
    with, "" for a new one.
    """

    def __init__(self, desk: Desk, chat: Chat | None = None, *, system: str = "") -> None:
        self._desk = desk
        self.chat_id = chat.id if chat else None
        self.title = chat.title if chat else UNTITLED
        self.model = chat.model if chat else ""
        self.updated_at = chat.updated_at / 1e3 if chat else time.time()
        self.is_pinned = chat is not None and chat.is_pinned
        self.system = chat.system if chat else system
        self.state = SessionState.ANSWERING if chat and chat.last_status is TurnStatus.RUNNING else SessionState.IDLE
        self.draft = ""
        self.params = SamplingParams()
        self.error = ""
        self.remedy = ""
        self.is_loaded = chat is None
        self._turns: list[TurnView] = []
        self._listeners = Listeners[Change]()
        self._task: asyncio.Task[None] | None = None
        self._live: tuple[Client, Reply] | None = None

    @property
    def turns(self) -> Sequence[TurnView]:
        """Finished and live turns in order; empty until `Workspace.open` has read them."""
        return self._turns

    @property
    def is_busy(self) -> bool:
        """Whether a turn is queued or being answered; then `ask` refuses and `stop` does something."""
        return self._task is not None and not self._task.done()

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed of the last turn, live or ended; the wait for its first token is not counted."""
        return self._turns[-1].tokens_per_s if self._turns else 0.0

    async def ask(self, prompt: str) -> TurnView:
        """Send one user message; returns once the host has stored and queued it. The reply comes through changes.

        The turn is in `turns` (state `queued`) before this waits for anything, so it can be shown at once; waiting
        for a model that loads may take long. Raises OctavoError (message, remedy) when it is refused: the prompt is
        too long, there is no host; then TurnRefused was sent and `draft` holds the prompt. While a turn is running
        it raises at once and changes nothing but `draft`. Cancelling the caller does not cancel the turn.
        """
        if self.is_busy:
            self._put_back(prompt)
            raise RequestRejectedError("A reply is still being written in this chat", "Wait for it or stop it.")
        if self.draft.strip() == prompt.strip():
            self.draft = ""
        turn = TurnView(prompt=prompt)
        self._turns.append(turn)
        self._listeners.tell(TurnAdded(len(self._turns) - 1))
        self._set_state(SessionState.QUEUED)
        accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        accepted.add_done_callback(lambda future: future.cancelled() or future.exception())  # perhaps nobody waits
        self._task = asyncio.create_task(self._drive(turn, accepted), name="octavo-session")
        await asyncio.shield(accepted)
        return turn

    async def stop(self) -> None:
        """End the running turn and keep what was said; a turn that had not begun is refused. Harmless when idle."""
        if self._live:
            client, reply = self._live
            with contextlib.suppress(OctavoError):  # gone: the turn ends by itself
                client.stop(reply)
        elif self._task:
            self._task.cancel()

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each change, in the event loop; it must return quickly. Returns the way out."""
        return self._listeners.add(callback)

    # ---- for the workspace ----

    def load(self) -> None:
        """Read the turns from the store. Raises OctavoError."""
        assert self.chat_id is not None
        with naming_store_errors():
            self._turns = [TurnView.of(turn) for turn in self._desk.store.turns(self.chat_id)]
        self.is_loaded = True

    def refresh(self, chat: Chat) -> None:
        """Another connection has written to the store: take over what is new. Raises OctavoError."""
        self.updated_at, self.is_pinned = chat.updated_at / 1e3, chat.is_pinned
        self._set_title(chat.title)
        if self.is_busy:
            return
        if self.is_loaded and not is_up_to_date(self._turns, chat):
            self.load()
            self._listeners.tell(TurnsReplaced())
        self._look_on(self._turns[-1].status if self._turns else chat.last_status)

    def follow(self, client: Client) -> None:
        """Follow the last turn if it is running and nobody does; one that this host does not run stays as it is."""
        if self.is_loaded and self._turns and self._turns[-1].is_running and not self.is_busy:
            self._task = asyncio.create_task(self._rejoin(client), name="octavo-session")

    def notice(self, text: str, remedy: str) -> None:
        """Tell whoever looks something that a person should know."""
        self._listeners.tell(Noticed(text, remedy))

    async def aclose(self) -> None:
        """Look away; the turn goes on in the host."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # ---- one turn ----

    async def _drive(self, turn: TurnView, accepted: "asyncio.Future[None]") -> None:
        try:
            await self._submit(turn)
        except OctavoError as error:
            self._take_back(turn, error)
            accepted.set_exception(error)
        except asyncio.CancelledError:
            stopped = RequestRejectedError("The question was stopped before it began", "It is in the composer again.")
            self._take_back(turn, stopped)
            accepted.set_exception(stopped)
            raise
        except Exception as error:  # a border: a bug of ours must not lose what was typed
            log.exception("a question could not be sent")
            self._take_back(turn, OctavoError(f"The question could not be sent: {error!r}"))
            accepted.set_exception(error)
        else:
            accepted.set_result(None)
            await self._listen(turn)

    async def _submit(self, turn: TurnView) -> None:
        client = await self._desk.client(self)
        system = self.system if self.chat_id is None and self.system else None
        reply = client.submit(turn.prompt, chat_id=self.chat_id, system=system, params=self.params)
        self._live = (client, reply)
        frame = await reply.accepted()
        turn.turn_id = frame.turn_id
        if frame.chat_id is not None:
            self._bind(frame.chat_id)

    def _bind(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.updated_at = time.time()
        try:
            chat = self._desk.store.chat(chat_id)
        except StoreError as error:
            self.notice(error.message, error.remedy)
        else:
            self.model = chat.model
            self._set_title(chat.title)
        self._desk.accepted(self)

    async def _rejoin(self, client: Client) -> None:
        assert self.chat_id is not None
        try:
            reply = client.watch(self.chat_id)
            frame = await reply.accepted()
            if frame.turn_id != self._turns[-1].turn_id:  # a later one than we have read
                self.load()
                self._listeners.tell(TurnsReplaced())
        except OctavoError:  # it is over, or another host's: the store tells
            self._task = None
            with naming_store_errors():
                self.refresh(self._desk.store.chat(self.chat_id))
            return
        self._live = (client, reply)
        self._set_state(SessionState.QUEUED)
        await self._listen(self._turns[-1], is_rejoined=True)

    async def _listen(self, turn: TurnView, *, is_rejoined: bool = False) -> None:
        assert self._live is not None
        try:
            async for frame in self._live[1]:
                if is_rejoined and isinstance(frame, TurnDelta):
                    is_rejoined = False
                    self._catch_up(turn, frame)
                else:
                    self._take(turn, frame)
        except OctavoError as error:
            turn.interrupt(str(error))
            self._end(turn, error.message, error.remedy)

    def _take(self, turn: TurnView, frame: ReplyFrame) -> None:
        match frame:
            case Accepted():
                pass  # read before
            case TurnStarted():
                turn.cached_tokens = frame.cached_tokens
                self._set_state(SessionState.ANSWERING)
            case TurnPreempted():
                self._set_state(SessionState.QUEUED)
            case TurnDelta():
                self._set_state(SessionState.ANSWERING)
                turn.append(frame)
                self._listeners.tell(TextAppended(self._turns.index(turn), frame.text))
            case Notice():
                self.notice(frame.text, frame.remedy)
            case TurnFinished():
                turn.finish(frame)
                self._end(turn, frame.error)

    def _catch_up(self, turn: TurnView, whole: TurnDelta) -> None:
        """The first text of a turn that is rejoined is all of it; some of that is known from the store."""
        rest = turn.catch_up(whole)
        self._listeners.tell(TurnsReplaced() if rest is None else TextAppended(self._turns.index(turn), rest))

    def _end(self, turn: TurnView, error: str = "", remedy: str = "") -> None:
        self._live = self._task = None
        self._listeners.tell(TurnEnded(self._turns.index(turn)))
        self._set_state(SessionState.FAILED if error else SessionState.IDLE, error, remedy)

    def _take_back(self, turn: TurnView, error: OctavoError) -> None:
        """A refused turn: nothing of it is stored, and nothing that was typed is lost."""
        index = self._turns.index(turn)
        del self._turns[index]
        self._live = self._task = None
        self._put_back(turn.prompt)
        self._listeners.tell(TurnRefused(index, turn.prompt, error.message, error.remedy))
        self._set_state(SessionState.FAILED, error.message, error.remedy)

    def _put_back(self, prompt: str) -> None:
        if prompt not in self.draft:
            self.draft = f"{prompt}\n{self.draft}" if self.draft else prompt

    # ---- telling ----

    def _set_state(self, state: SessionState, error: str = "", remedy: str = "") -> None:
        self.error, self.remedy = error, remedy
        if state is not self.state:
            self.state = state
            self._listeners.tell(StateChanged(state))

    def _look_on(self, status: str | None) -> None:
        """The state of a chat whose last turn, if it runs, is followed by others."""
        if status == TurnStatus.RUNNING:
            self._set_state(SessionState.ANSWERING)
        elif self.state is SessionState.ANSWERING:
            self._set_state(SessionState.IDLE)

    def _set_title(self, title: str) -> None:
        if title != self.title:
            self.title = title
            self._listeners.tell(TitleChanged(title))
