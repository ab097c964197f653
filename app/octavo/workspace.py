"""All sessions of one user interface over one store and one host: the list, the host's state, reconnecting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from octavo.session import Session

if TYPE_CHECKING:
    from octavo.config import Settings
    from octavo.paths import Paths


class HostState(StrEnum):
    """How the host of this workspace fares."""

    STARTING = "starting"  # looked for, or its process is coming up
    LOADING = "loading"  # connected; the model is being loaded, asks wait in its queue
    READY = "ready"
    FAILED = "failed"  # it could not start or could not load the model
    LOST = "lost"  # it went away (crashed, or idle for long); the next ask starts it again


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The host's state, its model and device ("" until known), and for `failed` and `lost` why and what to do."""

    state: HostState = HostState.STARTING
    model: str = ""
    device: str = ""
    max_model_len: int = 0
    error: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class HostChanged:
    """`Workspace.host` is another one now."""

    host: HostView


@dataclass(frozen=True, slots=True)
class SessionsChanged:
    """`Workspace.sessions` has another order, other members or other titles."""


WorkspaceChange = HostChanged | SessionsChanged


class Workspace:
    """Owns the store (which it reads) and the client; hands out one Session per chat, always the same one."""

    host: HostView

    def __init__(self, settings: "Settings", paths: "Paths", *, model: str | None = None) -> None:
        """Opens the store at once and reads the list; `model` replaces that of the settings. Raises OctavoError."""
        raise NotImplementedError

    @property
    def sessions(self) -> Sequence[Session]:
        """All chats, most recently active first; new ones that were never asked come first."""
        raise NotImplementedError

    def new(self) -> Session:
        """Open a new, unsaved session; the first ask stores it."""
        raise NotImplementedError

    def open(self, chat_id: str) -> Session:
        """Give the session of a stored chat with its turns read; a turn that runs in the host is followed.

        `chat_id` may be a unique prefix. Raises OctavoError when there is no such chat.
        """
        raise NotImplementedError

    async def start(self) -> None:
        """Begin connecting (and starting the host if need be) and watching the store; returns at once."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Let go of the host and the store; running turns go on in the host."""
        raise NotImplementedError

    def subscribe(self, callback: Callable[[WorkspaceChange], None]) -> Callable[[], None]:
        """Call `callback` with each change, in the event loop; it must return quickly. Returns the way out."""
        raise NotImplementedError
