"""The logs.db of llm (https://llm.datasette.io), of either generation of its tables; read and never written."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from octavo_data.exchange.entries import TurnEntry
from octavo_data.exchange.errors import BadContentError
from octavo_data.exchange.foreign import Defaults, Taken, foreign_chat, stable_id
from octavo_data.exchange.llm_rows import KIND, columns, measured_turn, time_of
from octavo_data.exchange.llm_threads import has_threads, read_threads

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
    if not columns(conn, "responses") >= _NEEDED or "name" not in columns(conn, "conversations"):
        raise BadContentError("", "a database, but not llm's: it lacks its tables conversations and responses")
    taken = Taken(KIND)
    threads = read_threads(conn, defaults, taken.skipped) if has_threads(conn) else {}
    names = dict(conn.execute("SELECT id, name FROM conversations").fetchall())
    groups = _grouped(conn)
    for key, rows in groups.items():
        if key not in threads or len(threads[key].turns) < len(rows):  # else the thread goes on with these
            _take(conn, key, rows, names.get(key), defaults, taken)
    taken.chats += threads.values()
    taken.skipped["empty chat"] += len(names.keys() - groups.keys() - threads.keys())
    for table, name in _LEFT_OUT.items():
        if columns(conn, table):
            taken.skipped[name] += conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return taken


def _take(
    conn: sqlite3.Connection, key: str, rows: list[sqlite3.Row], name: object, defaults: Defaults, taken: Taken
) -> None:
    turns: list[TurnEntry] = []
    for row in rows:
        turns.append(_turn(conn, row, turns[-1].id if turns else None, defaults))
    systems = [_with_fragments(conn, "system_fragments", row, "system") for row in rows]
    taken.skipped["later system message"] += sum(text not in ("", systems[0]) for text in systems[1:])
    chat_id = stable_id(turns[0].created_at, KIND, "responses", key)
    title = name if isinstance(name, str) else ""
    taken.chats.append(foreign_chat(chat_id, title, defaults.model, turns, system=systems[0]))


def _turn(conn: sqlite3.Connection, row: sqlite3.Row, parent_id: str | None, defaults: Defaults) -> TurnEntry:
    time_ms = time_of(row, defaults.time_ms)
    turn_id = stable_id(time_ms, KIND, "responses", "turn", str(row["id"]))
    prompt = _with_fragments(conn, "prompt_fragments", row, "prompt")
    return measured_turn(turn_id, parent_id, prompt, _text(row, "response"), time_ms, row)


def _grouped(conn: sqlite3.Connection) -> dict[str, list[sqlite3.Row]]:
    """The responses of each conversation, the oldest first; one without a conversation is one of its own."""
    present = columns(conn, "responses")
    selected = ", ".join(f'"{name}"' if name in present else f'NULL AS "{name}"' for name in _READ)
    order = '"datetime_utc", rowid' if "datetime_utc" in present else "rowid"
    groups: dict[str, list[sqlite3.Row]] = {}
    for row in conn.execute(f"SELECT {selected} FROM responses ORDER BY {order}").fetchall():
        groups.setdefault(str(row["conversation_id"] or f"response {row['id']}"), []).append(row)
    return groups


def _with_fragments(conn: sqlite3.Connection, table: str, row: sqlite3.Row, column: str) -> str:
    """The text of the column behind the fragments that llm put before it."""
    texts = [_text(row, column)]
    if columns(conn, table):
        sql = f'SELECT content FROM {table} JOIN fragments ON id = fragment_id WHERE response_id = ? ORDER BY "order"'
        texts = [str(content) for (content,) in conn.execute(sql, (row["id"],))] + texts
    return "\n".join(text for text in texts if text)


def _text(row: sqlite3.Row, column: str) -> str:
    value = row[column]
    if not isinstance(value, str | None):
        raise BadContentError(f"responses, row {row['id']}, {column}", f"not a text but {type(value).__name__}")
    return value or ""
