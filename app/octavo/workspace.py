"""All sessions of one user interface over one store and the hosts of their models: the list, who answers whom."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.client import Client
from octavo.config import Settings
from octavo.errors import OctavoError
from octavo.going_on import GoingOn, going_on
from octavo.host_link import HostLink
from octavo.host_lock import reap
from octavo.host_view import HostState, HostView
from octavo.listeners import Listeners
from octavo.paths import Paths
from octavo.protocol import EngineStatus
from octavo.session import Session
from octavo.store_errors import naming_store_errors
from octavo_data import Chat, Store, StoreError, TurnStatus

__all__ = ["HostChanged", "HostState", "HostView", "SessionsChanged", "Workspace", "WorkspaceChange"]

log = logging.getLogger(__name__)
POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class HostChanged:
    """A host of this workspace fares otherwise now."""

    host: HostView


@dataclass(frozen=True, slots=True)
class SessionsChanged:
    """`Workspace.sessions` has another order, other members or other titles."""


WorkspaceChange = HostChanged | SessionsChanged


class Workspace:
    """Owns the store (which it reads) and the connections; hands out one Session per chat, always the same one.

    A chat goes on with its own model, if that is here; `host_of` says how its host fares. Without a host it is for
    reading: an ask then raises why there is none and what to do.
    """

    def __init__(self, settings: Settings, paths: Paths) -> None:
        """Opens the store at once and reads the list. Raises OctavoError."""
        self._settings = settings
        self._paths = paths
        with naming_store_errors():
            self.store = Store(paths.store_file)
        self._links = {settings.model: self._new_link(settings)}  # by the host's model
        self._models: dict[str, str] = {}  # by a chat's own model the one that it goes on with
        self._polling: asyncio.Task[None] | None = None
        self._listeners = Listeners[WorkspaceChange]()
        self._new: list[Session] = []
        self._stored: dict[str, Session] = {}
        self._version = -1
        self._has_running = False
        self._reap()
        self._refresh()

    @property
    def notice(self) -> str:
        """What a person should know about the store, for example that it is open for reading only; or nothing."""
        return self.store.notice

    @property
    def sessions(self) -> Sequence[Session]:
        """All open chats: new ones that were never asked, then pinned ones, then the others by their last activity."""
        ordered = sorted(self._stored.values(), key=lambda one: (one.is_pinned, one.updated_at), reverse=True)
        return [*reversed(self._new), *ordered]

    def new(self, *, system: str = "") -> Session:
        """Open a new, unsaved session; the first ask stores it."""
        session = Session(self, system=system)
        self._new.append(session)
        self._listeners.tell(SessionsChanged())
        return session

    def open(self, chat_id: str) -> Session:
        """Give the session of a stored chat with its turns read; a turn that runs in the host is followed.

        `chat_id` may be a unique prefix. Raises OctavoError when there is no such chat.
        """
        with naming_store_errors():
            chat = self.store.chat(chat_id)
        session = self._stored.setdefault(chat.id, Session(self, chat))
        if not session.is_loaded:
            session.load()
        self._go_on(session)
        if client := self._link(session).live:
            session.follow(client)
        elif session.turns and session.turns[-1].is_running:
            self._link(session).connect()
        return session

    async def start(self) -> None:
        """Begin connecting (and starting the host if need be) and watching the store; returns at once."""
        self._polling = self._polling or asyncio.create_task(self._poll(), name="octavo-workspace")
        self._link(None).connect()

    async def aclose(self) -> None:
        """Let go of the hosts and the store; running turns go on in the hosts."""
        if self._polling:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await asyncio.gather(*(session.aclose() for session in self.sessions))
        await asyncio.gather(*(link.aclose() for link in self._links.values()))
        self.store.close()

    def subscribe(self, callback: Callable[[WorkspaceChange], None]) -> Callable[[], None]:
        """Call `callback` with each change, in the event loop; it must return quickly. Returns the way out."""
        return self._listeners.add(callback)

    @property
    def host(self) -> HostView:
        """How the host of the current model fares, which new chats speak with."""
        return self.host_of(None)

    def host_of(self, session: Session | None) -> HostView:
        """How the host fares that a session goes on with."""
        return self._link(session).view

    async def engine_status(self, session: Session | None = None) -> EngineStatus | None:
        """How that host's engine fares; None while its model is not loaded (none is started for this)."""
        if client := self._link(session).live:
            with contextlib.suppress(OctavoError):
                return await client.status()
        return None

    # ---- for the sessions ----

    async def client(self, session: Session) -> Client:
        """The connection to the host that the session goes on with, which is started if need be. Raises OctavoError."""
        choice = self._go_on(session)
        if choice.notice:
            session.notice(choice.notice, choice.remedy)
        return await self._link(session).client()

    def accepted(self, session: Session) -> None:
        """A turn of the session was stored: it is the most recent one now."""
        if session in self._new:
            self._new.remove(session)
        if session.chat_id:
            self._stored[session.chat_id] = session
        self._listeners.tell(SessionsChanged())

    # ---- the hosts ----

    def _go_on(self, session: Session) -> GoingOn:
        """With which model the session goes on from now."""
        choice = going_on(session.model, self._settings, self._paths)
        self._models[session.model] = choice.settings.model
        if choice.settings.model not in self._links:
            self._links[choice.settings.model] = self._new_link(choice.settings)
        return choice

    def _new_link(self, settings: Settings) -> HostLink:
        return HostLink(settings, self._paths, lambda view: self._listeners.tell(HostChanged(view)), self._follow_all)

    def _link(self, session: Session | None) -> HostLink:
        """The connection that a session goes on over, as far as that was asked; the current model's for the others."""
        model = self._models.get(session.model) if session else None
        return self._links[model or self._settings.model]

    def _follow_all(self, link: HostLink, client: Client) -> None:
        for session in self._stored.values():
            if self._link(session) is link:
                session.follow(client)

    # ---- the store ----

    async def _poll(self) -> None:
        """See what other processes wrote; a store that cannot be read now may be readable later."""
        while True:
            await asyncio.sleep(POLL_S)
            try:
                self._poll_once()
            except (StoreError, OctavoError) as error:
                log.warning("the store cannot be read: %s", error)

    def _poll_once(self) -> None:
        if self._has_running and self._reap():
            self._version = -1  # our own writes do not change it
        self._refresh()

    def _refresh(self) -> None:
        """Take over what changed in the store since the last time."""
        version = self.store.data_version()
        if version == self._version:
            return
        chats = self.store.chats()
        self._version = version
        self._has_running = any(chat.last_status is TurnStatus.RUNNING for chat in chats)
        before = [(session.chat_id, session.title) for session in self.sessions]
        self._drop_removed(chats)
        for chat in chats:
            self._take(chat)
        if before != [(session.chat_id, session.title) for session in self.sessions]:
            self._listeners.tell(SessionsChanged())

    def _take(self, chat: Chat) -> None:
        session = self._stored.get(chat.id)
        if session is None:
            self._stored[chat.id] = Session(self, chat)
            return
        session.refresh(chat)
        link = self._link(session)
        if client := link.live:
            session.follow(client)
        elif chat.last_status is TurnStatus.RUNNING and link.view.state is HostState.LOST:
            link.connect()  # somebody else started the host anew

    def _drop_removed(self, chats: Sequence[Chat]) -> None:
        known = {chat.id for chat in chats}
        self._stored = {id_: session for id_, session in self._stored.items() if id_ in known or session.is_busy}

    def _reap(self) -> int:
        """Close the turns of hosts that died, and tell how many; one that cannot be written now stays as it is."""
        try:
            return reap(self.store, self._paths)
        except StoreError as error:
            log.warning("turns of hosts that died cannot be closed: %s", error)
            return 0
