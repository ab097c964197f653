"""The logs.db of llm (https://llm.datasette.io): its conversations and responses, read and never written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from octavo_data.exchange.entries import CountsEntry, TimingsEntry, TurnEntry
from octavo_data.exchange.errors import BadContentError
from octavo_data.exchange.foreign import Defaults, Taken, finished_turn, foreign_chat, stable_id

_KIND = "llm"
_NEEDED = {"id", "prompt", "response", "conversation_id"}
_READ = (*sorted(_NEEDED), "system", "datetime_utc", "input_tokens", "output_tokens", "duration_ms")
_LEFT_OUT = {"prompt_attachments": "attachment", "tool_calls": "tool call", "tool_results": "tool message"}


def read_llm_logs(path: Path, defaults: Defaults) -> Taken:
    """All conversations of the database; BadContentError with the table and row."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as conn:
            conn.row_factory = sqlite3.Row
            conn.execute("BEGIN")
            return _read(conn, defaults)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise BadContentError("", f"cannot be read as a database: {error}") from error


def _read(conn: sqlite3.Connection, defaults: Defaults) -> Taken:
    columns = _columns(conn, "responses")
    if not columns >= _NEEDED or "name" not in _columns(conn, "conversations"):
        raise BadContentError("", "a database, but not llm's: it lacks its tables conversations and responses")
    taken = Taken(_KIND)
    names = dict(conn.execute("SELECT id, name FROM conversations").fetchall())
    for key, rows in _grouped(conn, columns).items():
        _take(conn, key, rows, names.get(key), defaults, taken)
    taken.skipped["empty chat"] += len(names.keys() - {chat for (chat,) in _used(conn)})
    _count_left_out(conn, taken)
    return taken


def _take(
    conn: sqlite3.Connection, key: str, rows: list[sqlite3.Row], name: object, defaults: Defaults, taken: Taken
) -> None:
    turns: list[TurnEntry] = []
    systems: list[str] = []
    for row in rows:
        systems.append(_with_fragments(conn, "system_fragments", row, "system"))
        turns.append(_turn(conn, row, turns[-1].id if turns else None, defaults))
    taken.skipped["later system prompt"] += sum(text not in ("", systems[0]) for text in systems[1:])
    chat_id = stable_id(turns[0].created_at, _KIND, key)
    title = name if isinstance(name, str) else ""
    taken.chats.append(foreign_chat(chat_id, title, defaults.model, turns, system=systems[0]))


def _turn(conn: sqlite3.Connection, row: sqlite3.Row, parent_id: str | None, defaults: Defaults) -> TurnEntry:
    time_ms = _milliseconds(row["datetime_utc"], defaults.time_ms)
    return finished_turn(
        stable_id(time_ms, _KIND, "turn", str(row["id"])),
        parent_id,
        _with_fragments(conn, "prompt_fragments", row, "prompt"),
        _text(row, "response"),
        time_ms,
        counts=CountsEntry(prompt_tokens=_number(row["input_tokens"]), completion_tokens=_number(row["output_tokens"])),
        timings=TimingsEntry(total_ms=float(_number(row["duration_ms"]))),
    )


def _grouped(conn: sqlite3.Connection, columns: set[str]) -> dict[str, list[sqlite3.Row]]:
    """The responses of each conversation, the oldest first; one without a conversation is one of its own."""
    selected = ", ".join(f'"{name}"' if name in columns else f'NULL AS "{name}"' for name in _READ)
    order = '"datetime_utc", rowid' if "datetime_utc" in columns else "rowid"
    groups: dict[str, list[sqlite3.Row]] = {}
    for row in conn.execute(f"SELECT {selected} FROM responses ORDER BY {order}"):
        groups.setdefault(str(row["conversation_id"] or f"response {row['id']}"), []).append(row)
    return groups


def _used(conn: sqlite3.Connection) -> Iterator[tuple[str]]:
    yield from conn.execute("SELECT DISTINCT conversation_id FROM responses")


def _with_fragments(conn: sqlite3.Connection, table: str, row: sqlite3.Row, column: str) -> str:
    """The text of the column behind the fragments that llm put before it."""
    texts = [_text(row, column)]
    if _columns(conn, table):
        sql = f'SELECT content FROM {table} JOIN fragments ON id = fragment_id WHERE response_id = ? ORDER BY "order"'
        texts = [str(content) for (content,) in conn.execute(sql, (row["id"],))] + texts
    return "\n".join(text for text in texts if text)


def _text(row: sqlite3.Row, column: str) -> str:
    value = row[column]
    if not isinstance(value, str | None):
        raise BadContentError(f"responses, row {row['id']}, {column}", f"not a text but {type(value).__name__}")
    return value or ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= 2**53 else 0


def _milliseconds(text: object, default_ms: int) -> int:
    """A time as llm writes it: ISO, in UTC with or without saying so."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return default_ms
    return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def _count_left_out(conn: sqlite3.Connection, taken: Taken) -> None:
    for table, name in _LEFT_OUT.items():
        if _columns(conn, table):
            taken.skipped[name] += conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    if "parent_message_hash" in _columns(conn, "turns"):  # llm 0.32 logs here, and the old tables stay as they were
        sql = "SELECT count(*) FROM turns WHERE id NOT IN (SELECT id FROM responses)"
        taken.skipped["message-store turn"] += conn.execute(sql).fetchone()[0]


def _columns(conn: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in conn.execute(f"PRAGMA table_info({table})")}
