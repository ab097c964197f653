"""What outlives a run of Octavo: the SQLite store of chats and turns."""

from octavo_data.errors import (
    AmbiguousChatError,
    ChatMovedError,
    ChatNotFoundError,
    ChatTrashedError,
    NoChatsError,
    StoreError,
    StoreOpenError,
    StoreReadError,
    StoreReadOnlyError,
    StoreWriteError,
    TagError,
    TokenIdsError,
    TurnClosedError,
    TurnNotFoundError,
)
from octavo_data.records import Chat, Place, Shelf, TemplateUse, Turn, TurnCounts, TurnStatus, TurnTimings
from octavo_data.store import Store

__all__ = [
    "AmbiguousChatError",
    "Chat",
    "ChatMovedError",
    "ChatNotFoundError",
    "ChatTrashedError",
    "NoChatsError",
    "Place",
    "Shelf",
    "Store",
    "StoreError",
    "StoreOpenError",
    "StoreReadError",
    "StoreReadOnlyError",
    "StoreWriteError",
    "TagError",
    "TemplateUse",
    "TokenIdsError",
    "Turn",
    "TurnClosedError",
    "TurnCounts",
    "TurnNotFoundError",
    "TurnStatus",
    "TurnTimings",
]
