"""What outlives a run of Octavo: the SQLite store of chats and turns."""

from octavo_data.errors import (
    AmbiguousChatError,
    ChatMovedError,
    ChatNotFoundError,
    NoChatsError,
    StoreError,
    StoreOpenError,
    StoreReadError,
    StoreReadOnlyError,
    StoreWriteError,
    TokenIdsError,
    TurnClosedError,
    TurnNotFoundError,
)
from octavo_data.records import Chat, Place, Turn, TurnCounts, TurnStatus, TurnTimings
from octavo_data.store import Store

__all__ = [
    "AmbiguousChatError",
    "Chat",
    "ChatMovedError",
    "ChatNotFoundError",
    "NoChatsError",
    "Place",
    "Store",
    "StoreError",
    "StoreOpenError",
    "StoreReadError",
    "StoreReadOnlyError",
    "StoreWriteError",
    "TokenIdsError",
    "Turn",
    "TurnClosedError",
    "TurnCounts",
    "TurnNotFoundError",
    "TurnStatus",
    "TurnTimings",
]
