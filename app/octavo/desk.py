"""What a session needs of the workspace that it lies in."""

from typing import TYPE_CHECKING, Protocol

from octavo.client import Client
from octavo_data import Store

if TYPE_CHECKING:
    from octavo.session import Session


class Desk(Protocol):
    """Where sessions lie: over one store, and over the hosts of the models that they speak with."""

    @property
    def store(self) -> Store:
        """For reading."""
        ...

    async def client(self, session: "Session") -> Client:
        """The connection to the host of the session's model, which is started if need be. Raises OctavoError."""
        ...

    def accepted(self, session: "Session") -> None:
        """A turn of the session was stored: it is the most recent one now."""
        ...
