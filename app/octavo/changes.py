"""What a session tells those who look at it: small facts, named by what happened."""

from dataclasses import dataclass
from enum import StrEnum


class SessionState(StrEnum):
    """What a session is doing; after `failed` (see `Session.error`) it can be asked again like an idle one."""

    IDLE = "idle"
    QUEUED = "queued"  # asked; waiting for the host, the model or the engine's queue
    ANSWERING = "answering"
    FAILED = "failed"  # the last ask was refused, or its turn failed or was interrupted


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
