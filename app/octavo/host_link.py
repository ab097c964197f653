"""The connection of a user interface to the host of one model: made when it is needed, and anew after a loss."""

import asyncio
from collections.abc import Callable

from octavo import launcher
from octavo.client import Client
from octavo.config import Settings
from octavo.errors import OctavoError
from octavo.host_view import HostView
from octavo.paths import Paths


class HostLink:
    """`view` says how the host fares; `on_view` hears when it is another one, `on_client` of each new connection."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        on_view: Callable[[HostView], None],
        on_client: Callable[["HostLink", Client], None],
    ) -> None:
        self.view = HostView(model=settings.model)
        self._settings = settings
        self._paths = paths
        self._on_view = on_view
        self._on_client = on_client
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None

    @property
    def live(self) -> Client | None:
        """The connection, while there is one."""
        return self._client if self._client and not self._client.closed.is_set() else None

    async def client(self) -> Client:
        """The connection to a host that serves, which is started if need be. Raises OctavoError."""
        if (client := self.live) and not client.failure:
            return client
        return await asyncio.shield(self.connect())

    def connect(self) -> "asyncio.Task[Client]":
        """The attempt that is on its way, or a new one."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._reconnect(), name="octavo-connect")
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())  # `view` tells it
        return self._connecting

    async def aclose(self) -> None:
        """Let go of the host."""
        if self._connecting:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._client:
            await self._client.aclose()

    async def _reconnect(self) -> Client:
        self._set_view(HostView(model=self._settings.model))
        try:
            client = await launcher.connect(self._settings, self._paths)
        except OctavoError as error:
            self._set_view(HostView.failed(self._settings.model, error))
            raise
        if self._client:
            await self._client.aclose()
        self._client = client
        client.subscribe(lambda: self._look_at(client))
        self._look_at(client)
        self._on_client(self, client)
        return client

    def _look_at(self, client: Client) -> None:
        if client is self._client:
            self._set_view(HostView.of(client))

    def _set_view(self, view: HostView) -> None:
        if view != self.view:
            self.view = view
            self._on_view(view)
