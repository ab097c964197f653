"""What the store hands out: chats and turns as plain data; all times are milliseconds since the epoch, in UTC.

Structs of msgspec, not data classes: a frozen one of those takes 4 us to make, and a list may have thousands.
"""

from enum import Enum, StrEnum
from typing import Literal

from msgspec import Struct


class TurnStatus(StrEnum):
    """Where a turn stands; every status but RUNNING is final."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  # a person stopped it; what was said is kept
    INTERRUPTED = "interrupted"  # the host died; what was flushed is kept
    FAILED = "failed"


class Place(Enum):
    """Where a new turn goes when no parent is named (None names a parent: the root)."""

    TIP = "tip"


AtTip = Literal[Place.TIP]


class Shelf(Enum):
    """Which chats a list is of."""

    OPEN = "open"  # neither archived nor in the trash, pinned ones first
    ARCHIVED = "archived"
    TRASH = "trash"
    ALL = "all"  # open or archived


class TurnCounts(Struct, frozen=True):
    """Token counts of one turn; `cached_tokens` of the prompt came from shared blocks, `computed_tokens` did not."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    completion_tokens: int = 0


class TurnTimings(Struct, frozen=True):
    """Milliseconds from the arrival of a turn; `tokens_per_s` counts decoding alone, not the wait."""

    queue_ms: float = 0.0
    first_token_ms: float = 0.0
    total_ms: float = 0.0
    tokens_per_s: float = 0.0


class TemplateUse(Struct, frozen=True):
    """A template as a turn was asked with it: its name, and the hash of what it said then."""

    name: str
    content_hash: str


class Chat(Struct, frozen=True):
    """A stored conversation. `num_turns` counts from the root to the tip; without turns tip and status are None.

    `model` is the one that it was begun with, `tags` are sorted; `archived_at` and `trashed_at` are None unless it is
    put away or thrown away.
    """

    id: str
    title: str
    model: str
    system: str
    created_at: int
    updated_at: int
    tip_id: str | None
    num_turns: int
    last_status: TurnStatus | None
    is_pinned: bool
    archived_at: int | None
    trashed_at: int | None
    tags: tuple[str, ...]


class Turn(Struct, frozen=True):
    """One user message, its reply and its measurements.

    `stop_reason` is empty while it runs, "interrupted" after its host died, else what the engine said; `error` is empty
    unless it failed. `model` is the one that was asked. Its exact token ids are `Store.token_ids`, of which the first
    `kept_tokens` are its parent's.
    """

    id: str
    chat_id: str
    parent_id: str | None
    prompt: str
    reply: str
    status: TurnStatus
    stop_reason: str
    error: str
    kept_tokens: int
    model: str
    template: TemplateUse | None
    counts: TurnCounts
    timings: TurnTimings
    created_at: int
    ended_at: int | None
