"""All sessions of one user interface over one store and one host: the list, the host's state, reconnecting."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo import launcher
from octavo.client import Client
from octavo.config import Settings
from octavo.errors import OctavoError
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
    """`Workspace.host` is another one now."""

    host: HostView


@dataclass(frozen=True, slots=True)
class SessionsChanged:
    """`Workspace.sessions` has another order, other members or other titles."""


WorkspaceChange = HostChanged | SessionsChanged


class Workspace:
    """Owns the store (which it reads) and the client; hands out one Session per chat, always the same one.

    Without a host it is for reading: an ask then raises why there is none and what to do. `host` says how it fares.
    """

    def __init__(self, settings: Settings, paths: Paths) -> None:
        """Opens the store at once and reads the list. Raises OctavoError."""
        self._settings = settings
        self._paths = paths
        with naming_store_errors():
            self.store = Store(paths.store_file)
        self.host = HostView(model=settings.model)
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
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
        if self._client and not self._client.closed.is_set():
            session.follow(self._client)
        return session

    async def start(self) -> None:
        """Begin connecting (and starting the host if need be) and watching the store; returns at once."""
        self._polling = self._polling or asyncio.create_task(self._poll(), name="octavo-workspace")
        self._connect()

    async def aclose(self) -> None:
        """Let go of the host and the store; running turns go on in the host."""
        tasks = [task for task in (self._polling, self._connecting) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(session.aclose() for session in self.sessions))
        if self._client:
            await self._client.aclose()
        self.store.close()

    def subscribe(self, callback: Callable[[WorkspaceChange], None]) -> Callable[[], None]:
        """Call `callback` with each change, in the event loop; it must return quickly. Returns the way out."""
        return self._listeners.add(callback)

    async def engine_status(self) -> EngineStatus | None:
        """How the engine fares; None without a host whose model is loaded (none is started for this)."""
        if self._client and not self._client.closed.is_set():
            with contextlib.suppress(OctavoError):
                return await self._client.status()
        return None

    # ---- for the sessions ----

    async def client(self) -> Client:
        """The connection to the host, which is started if need be. Raises OctavoError."""
        if self._client and not self._client.closed.is_set() and not self._client.failure:
            return self._client
        return await asyncio.shield(self._connect())

    def accepted(self, session: Session) -> None:
        """A turn of the session was stored: it is the most recent one now."""
        if session in self._new:
            self._new.remove(session)
        if session.chat_id:
            self._stored[session.chat_id] = session
        self._listeners.tell(SessionsChanged())

    # ---- the host ----

    def _connect(self) -> "asyncio.Task[Client]":
        """The attempt that is on its way, or a new one."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._reconnect(), name="octavo-connect")
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())  # `host` tells it
        return self._connecting

    async def _reconnect(self) -> Client:
        self._set_host(HostView(model=self._settings.model))
        try:
            client = await launcher.connect(self._settings, self._paths)
        except OctavoError as error:
            self._set_host(HostView.failed(self._settings.model, error))
            raise
        if self._client:
            await self._client.aclose()
        self._client = client
        client.subscribe(lambda: self._look_at(client))
        self._look_at(client)
        for session in self._stored.values():
            session.follow(client)
        return client

    def _look_at(self, client: Client) -> None:
        if client is self._client:
            self._set_host(HostView.of(client))

    def _set_host(self, host: HostView) -> None:
        if host != self.host:
            self.host = host
            self._listeners.tell(HostChanged(host))

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
        self._refresh()
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
        if self._client and not self._client.closed.is_set():
            session.follow(self._client)

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
