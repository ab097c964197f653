"""The live side of chats, for any user interface: it asks, follows and stops turns, and tells whoever looks.

A session owns its generation: it goes on and is stored whoever looks at it, and a widget only subscribes. All methods
belong to the thread of the event loop. The workspace over all sessions is in `octavo.workspace`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from octavo_engine.events import Timings, Usage
from octavo_engine.params import SamplingParams


class SessionState(StrEnum):
    """What a session is doing; after `failed` (see `Session.error`) it can be asked again like an idle one."""

    IDLE = "idle"
    QUEUED = "queued"  # asked; waiting for the host, the model or the engine's queue
    ANSWERING = "answering"
    FAILED = "failed"  # the last ask was refused, or its turn failed or was interrupted


@dataclass(slots=True, kw_only=True)
class TurnView:
    """One user message and its reply as far as it is known; only its session changes it.

    `turn_id` is None until the host has stored it. `status` is a value of octavo_data's TurnStatus: running, done,
    stopped, interrupted, failed. `stop_reason` is a value of StopReason, "" while it runs. `error` is one line, ""
    when all is well. `cached_tokens` is known when the turn leaves the queue, `usage` and `timings` at its end.
    """

    prompt: str
    turn_id: str | None = None
    reply: str = ""
    status: str = "running"
    stop_reason: str = ""
    error: str = ""
    cached_tokens: int | None = None
    num_tokens: int = 0
    usage: Usage | None = None
    timings: Timings | None = None


@dataclass(frozen=True, slots=True)
class StateChanged:
    """`Session.state` is another one now."""

    state: SessionState


@dataclass(frozen=True, slots=True)
class TurnAdded:
    """`Session.turns[index]` is new (always the last); its reply is still empty."""

    index: int


@dataclass(frozen=True, slots=True)
class TextAppended:
    """`text` was put at the end of the reply of `Session.turns[index]`; comes at most about each 30 ms."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """`Session.turns[index]` is over, for whatever reason: its `status`, `stop_reason` and `error` say which."""

    index: int


@dataclass(frozen=True, slots=True)
class TurnRefused:
    """The last turn will not run and was taken out of `Session.turns` again (it was at `index`).

    Its prompt has been put back into `Session.draft`, before whatever was typed since. `error` has the reason and
    `remedy` what to do, one line each.
    """

    index: int
    prompt: str
    error: str
    remedy: str


@dataclass(frozen=True, slots=True)
class TurnsReplaced:
    """All of `Session.turns` was read anew, because another process went on with this chat."""


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """`Session.title` is another one now (the first ask names a new chat; another process may rename it)."""

    title: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something a person should know though the turn goes on, for example that it could not be stored."""

    text: str
    remedy: str


Change = StateChanged | TurnAdded | TextAppended | TurnEnded | TurnRefused | TurnsReplaced | TitleChanged | Noticed
Callback = Callable[[Change], None]


class Session:
    """One chat, stored or new: its turns, its unsent draft and the turn that runs.

    Make one through `Workspace.new` or `Workspace.open`. `draft` is the unsent text of the composer: the user
    interface reads it when the session comes into view and writes it as it is typed. `system` (for a new chat only)
    and `params` are used by the next `ask`. `error` is the reason of the state `failed`, "" otherwise, with `remedy`.
    """

    chat_id: str | None
    title: str
    state: SessionState
    draft: str
    system: str
    params: SamplingParams
    error: str
    remedy: str
    updated_at: float  # seconds since the epoch, of the last activity

    @property
    def turns(self) -> Sequence[TurnView]:
        """Finished and live turns in order; empty until `Workspace.open` has read them."""
        raise NotImplementedError

    @property
    def is_busy(self) -> bool:
        """Whether a turn is queued or being answered; then `ask` refuses and `stop` does something."""
        raise NotImplementedError

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed of the live turn (the wait for its first token not counted), or of the last ended one."""
        raise NotImplementedError

    async def ask(self, prompt: str) -> TurnView:
        """Send one user message; returns once the host has stored and queued it. The reply comes through changes.

        The turn is in `turns` (state `queued`) before this waits for anything, so it can be shown at once; waiting
        for a model that loads may take long. Raises OctavoError (message, remedy) when it is refused: a turn is
        running, the prompt is too long, there is no host; then TurnRefused was sent and `draft` holds the prompt.
        Cancelling the caller does not cancel the turn.
        """
        raise NotImplementedError

    async def stop(self) -> None:
        """End the running turn and keep what was said; a turn that had not begun is refused. Harmless when idle."""
        raise NotImplementedError

    def rename(self, title: str) -> None:
        """Give the chat another title and store it (a new chat keeps it for its first turn)."""
        raise NotImplementedError

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each change, in the event loop; it must return quickly. Returns the way out."""
        raise NotImplementedError
