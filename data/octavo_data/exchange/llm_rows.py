"""What both generations of llm's tables have in common: columns that may be missing, times, measurements."""

import sqlite3
from datetime import UTC, datetime

from octavo_data.exchange.entries import CountsEntry, TimingsEntry, TurnEntry
from octavo_data.exchange.foreign import finished_turn

KIND = "llm"


def columns(conn: sqlite3.Connection, table: str) -> set[str]:
    """The names of a table's columns; none where there is no such table."""
    return {row["name"] for row in conn.execute(f"PRAGMA table_info({table})")}


def time_of(row: sqlite3.Row, default_ms: int) -> int:
    """When the row was logged: llm writes ISO, in UTC with or without saying so."""
    try:
        time = datetime.fromisoformat(str(row["datetime_utc"]))
    except ValueError:
        return default_ms
    return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def measured_turn(
    turn_id: str, parent_id: str | None, prompt: str, reply: str, time_ms: int, row: sqlite3.Row | None
) -> TurnEntry:
    """A turn with the counts and the time that the row has for it."""
    if row is None:
        return finished_turn(turn_id, parent_id, prompt, reply, time_ms)
    counts = CountsEntry(prompt_tokens=_number(row["input_tokens"]), completion_tokens=_number(row["output_tokens"]))
    timings = TimingsEntry(total_ms=float(_number(row["duration_ms"])))
    return finished_turn(turn_id, parent_id, prompt, reply, time_ms, counts=counts, timings=timings)


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= 2**53 else 0
