"""Our own JSON format, which is also what every import becomes: chats with all turns of their trees."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from octavo_data.records import TurnStatus

FORMAT = "octavo-chats"
VERSION = 2
READABLE = (1, 2)  # a file of version 1 lacks the fields that have a default here

Id = Annotated[str, Meta(pattern=r"\A[0-9a-z]{26}\Z")]
Time = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]  # ms since the epoch, up to the year 9999
Count = Annotated[int, Meta(ge=0, le=2**53)]
Measure = Annotated[float, Meta(ge=0, le=1e300)]
TokenId = Annotated[int, Meta(ge=0, lt=2**32)]


class CountsEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token counts of a turn; see TurnCounts."""

    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    computed_tokens: Count = 0
    completion_tokens: Count = 0


class TimingsEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measurements of a turn; see TurnTimings."""

    queue_ms: Measure = 0.0
    first_token_ms: Measure = 0.0
    total_ms: Measure = 0.0
    tokens_per_s: Measure = 0.0


class TurnEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn; `prompt_ids` come behind the first `kept_tokens` ids of its parent.

    `model` is the one that was asked, empty in a file of version 1, which means that of the chat.
    """

    id: Id
    parent_id: Id | None
    prompt: str
    reply: str
    status: TurnStatus
    stop_reason: str
    error: str
    kept_tokens: Count
    model: str = ""
    template: str | None = None
    template_hash: str | None = None
    prompt_ids: tuple[TokenId, ...]
    reply_ids: tuple[TokenId, ...]
    counts: CountsEntry
    timings: TimingsEntry
    created_at: Time
    ended_at: Time | None


class ChatEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chat with all turns of its tree, parents before their children."""

    id: Id
    title: str
    model: str
    system: str
    created_at: Time
    updated_at: Time
    tip_id: Id | None
    is_pinned: bool = False
    archived_at: Time | None = None
    trashed_at: Time | None = None
    tags: tuple[str, ...] = ()
    turns: tuple[TurnEntry, ...]


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of our format. Unknown keys are refused, since to drop them would lose what they say."""

    format: Literal["octavo-chats"]
    version: Literal[1, 2]
    chats: tuple[ChatEntry, ...]


def path_to_tip(chat: ChatEntry) -> list[TurnEntry]:
    """The turns from the root to the tip, in order."""
    by_id = {turn.id: turn for turn in chat.turns}
    path: list[TurnEntry] = []
    at = chat.tip_id
    while at is not None:
        path.append(by_id[at])
        at = by_id[at].parent_id
    return path[::-1]
