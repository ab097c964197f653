"""What the chats of other programs have in common: ids that stay the same, times, titles, counts of what is left."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from octavo_data.encoding import clean_text
from octavo_data.exchange.entries import ChatEntry, CountsEntry, TimingsEntry, TurnEntry
from octavo_data.records import TurnStatus
from octavo_data.titles import first_words

_LAST_MS = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a file does not say: the model that its chats go on with, and a time (that of the file)."""

    model: str
    time_ms: int


@dataclass(slots=True)
class Taken:
    """What was understood of one file; `skipped` counts what was not taken, by its name in the singular."""

    kind: str
    chats: list[ChatEntry] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    num_closed: int = 0
    """Running turns that became interrupted."""


def stable_id(time_ms: int, *keys: str) -> str:
    """A ULID that the same keys give again, so that a file that is imported twice is known the second time."""
    from ulid import ULID

    digest = hashlib.blake2b("\0".join(keys).encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return str(ULID.from_bytes(time_ms.to_bytes(6, "big") + digest)).lower()


def milliseconds(seconds: object, default_ms: int) -> int:
    """A time in seconds since the epoch as ours, or the default where it is none that can be."""
    if isinstance(seconds, int | float) and 0 < seconds * 1000 <= _LAST_MS:
        return int(seconds * 1000)
    return default_ms


def finished_turn(
    turn_id: str,
    parent_id: str | None,
    prompt: str,
    reply: str,
    created_at: int,
    *,
    counts: CountsEntry | None = None,
    timings: TimingsEntry | None = None,
) -> TurnEntry:
    """A turn of which only the text is known; without ids the next prompt is built from the messages."""
    return TurnEntry(
        id=turn_id,
        parent_id=parent_id,
        prompt=clean_text(prompt),
        reply=clean_text(reply),
        status=TurnStatus.DONE,
        stop_reason="",
        error="",
        kept_tokens=0,
        prompt_ids=(),
        reply_ids=(),
        counts=counts or CountsEntry(),
        timings=timings or TimingsEntry(),
        created_at=created_at,
        ended_at=created_at,
    )


def foreign_chat(
    chat_id: str, title: str, model: str, turns: list[TurnEntry], *, tip_id: str | None = None, system: str = ""
) -> ChatEntry:
    """A chat that goes on with `model`; without a title it has that of its first question. It has turns."""
    times = [turn.created_at for turn in turns]
    return ChatEntry(
        id=chat_id,
        title=clean_text(title) if title.strip() else first_words(turns[0].prompt),
        model=model,
        system=clean_text(system),
        created_at=min(times),
        updated_at=max(times),
        tip_id=tip_id or turns[-1].id,
        turns=tuple(turns),
    )
