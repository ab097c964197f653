"""The message store of newer logs.db files of llm: threads that point at the end of a chain of shared messages."""

import json
import sqlite3
from collections import Counter
from dataclasses import dataclass, field

from octavo_data.exchange.entries import ChatEntry, TurnEntry
from octavo_data.exchange.errors import BadContentError
from octavo_data.exchange.foreign import Defaults, foreign_chat, stable_id
from octavo_data.exchange.llm_rows import KIND, columns, measured_turn, time_of

_CHAIN = """
WITH RECURSIVE chain(hash, parent, role, depth) AS (
    SELECT hash, parent_hash, role, 0 FROM messages WHERE hash = ?
    UNION ALL
    SELECT messages.hash, messages.parent_hash, messages.role, depth + 1
    FROM chain JOIN messages ON messages.hash = chain.parent
)
SELECT hash, role FROM chain ORDER BY depth DESC
"""
_NEEDED = {
    "threads": {"id", "name"},
    "messages": {"hash", "parent_hash", "role"},
    "parts": {"id", "message_hash", "position", "type", "text", "payload"},
    "turns": {"thread_id", "tip_message_hash", "datetime_utc", "input_tokens", "output_tokens", "duration_ms"},
}
_LEFT_OUT = {"reasoning": "reasoning message", "tool_call": "tool call", "attachment": "attachment"}


@dataclass(slots=True)
class _Turn:
    """A question, its replies, and the hash of the last message of both."""

    prompt: str
    asked: str  # the hash of the question
    last: str
    replies: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Thread:
    """What the messages of one thread said."""

    system: list[str] = field(default_factory=list)
    turns: list[_Turn] = field(default_factory=list)


def has_threads(conn: sqlite3.Connection) -> bool:
    """Whether the file has a message store; one that we cannot read raises BadContentError."""
    if "parent_message_hash" not in columns(conn, "turns"):
        return False
    for table, needed in _NEEDED.items():
        if not columns(conn, table) >= needed:
            raise BadContentError(f"table {table}", "lacks columns; the file is of another llm than those known here")
    return True


def read_threads(conn: sqlite3.Connection, defaults: Defaults, skipped: Counter[str]) -> dict[str, ChatEntry]:
    """The chats by the ids of their threads; a fork is a chat of its own."""
    chats = {}
    for row in conn.execute("SELECT id, name FROM threads ORDER BY rowid").fetchall():
        calls = conn.execute("SELECT * FROM turns WHERE thread_id = ? ORDER BY datetime_utc, rowid", (row["id"],))
        chat = _chat(conn, row, calls.fetchall(), defaults, skipped)
        if chat:
            chats[str(row["id"])] = chat
    return chats


def _chat(
    conn: sqlite3.Connection, row: sqlite3.Row, calls: list[sqlite3.Row], defaults: Defaults, skipped: Counter[str]
) -> ChatEntry | None:
    """The thread as a chat, to the end of its last call; None (counted) if nobody asked anything in it."""
    tips = [call["tip_message_hash"] for call in calls if call["tip_message_hash"]]
    chain = conn.execute(_CHAIN, (tips[-1],)).fetchall() if tips else []
    skipped["call beside the end of its thread"] += len(set(tips) - {message["hash"] for message in chain})
    thread = _read(conn, chain, skipped)
    if not thread.turns:
        skipped["empty chat"] += 1
        return None
    key = str(row["id"])
    turns = _entries(key, thread, {call["tip_message_hash"]: call for call in calls}, defaults)
    name = row["name"] if isinstance(row["name"], str) else ""
    chat_id = stable_id(turns[0].created_at, KIND, key)
    return foreign_chat(chat_id, name, defaults.model, turns, system="\n\n".join(thread.system))


def _read(conn: sqlite3.Connection, chain: list[sqlite3.Row], skipped: Counter[str]) -> _Thread:
    thread = _Thread()
    for row in chain:
        text, role = _text(conn, row["hash"], skipped), row["role"]
        if role == "user":
            thread.turns.append(_Turn(text, row["hash"], row["hash"]))
        elif role == "assistant" and thread.turns:
            thread.turns[-1].last = row["hash"]
            thread.turns[-1].replies += [text] if text else []
        elif role == "system" and not thread.turns:
            thread.system.append(text)
        else:
            skipped["later system message" if role == "system" else f"{role} message"] += 1
    return thread


def _entries(key: str, thread: _Thread, calls: dict[str, sqlite3.Row], defaults: Defaults) -> list[TurnEntry]:
    entries: list[TurnEntry] = []
    time_ms = min((time_of(call, defaults.time_ms) for call in calls.values()), default=defaults.time_ms)
    for turn in thread.turns:
        call = calls.get(turn.last)
        time_ms = time_of(call, time_ms) if call else time_ms
        turn_id = stable_id(time_ms, KIND, key, turn.asked)
        parent_id = entries[-1].id if entries else None
        entries.append(measured_turn(turn_id, parent_id, turn.prompt, "\n\n".join(turn.replies), time_ms, call))
    return entries


def _text(conn: sqlite3.Connection, message_hash: str, skipped: Counter[str]) -> str:
    """The text of a message; its other parts are counted."""
    texts = []
    for row in conn.execute("SELECT * FROM parts WHERE message_hash = ? ORDER BY position", (message_hash,)).fetchall():
        if row["type"] == "text":
            texts.append(_part(conn, row))
        elif row["type"] != "tool_result":  # counted as the message that it is
            skipped[_LEFT_OUT.get(row["type"], f"{row['type']} part")] += 1
    return "".join(texts)


def _part(conn: sqlite3.Connection, row: sqlite3.Row) -> str:
    """The text as it stands, or put together from literals and stored fragments."""
    if isinstance(row["text"], str):
        return row["text"]
    place = f"parts, row {row['id']}, payload"
    try:
        pieces = json.loads(row["payload"] or "{}").get("text_ref", [])
        return "".join(_piece(conn, piece) for piece in pieces)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise BadContentError(place, f"cannot be read: {error!r}") from error


def _piece(conn: sqlite3.Connection, piece: dict[str, object]) -> str:
    if "literal" in piece:
        return str(piece["literal"])
    for (content,) in conn.execute("SELECT content FROM fragments WHERE id = ?", (piece["fragment"],)):
        return str(content)
    raise KeyError(f"fragment {piece['fragment']}")
