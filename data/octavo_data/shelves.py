"""Where a chat is kept: pinned, in the archive, in the trash, under which tags; and the end of what was thrown away."""

import json
import sqlite3
import unicodedata
from collections.abc import Sequence

from octavo_data import refusals
from octavo_data.encoding import clean_text, now_ms
from octavo_data.errors import TagError
from octavo_data.store import Store

MAX_TAG_CHARS = 40

# Turns of the doomed chats that other chats stand on (a fork shares them), each with one that does.
_SHARED = """
WITH RECURSIVE
doomed(id) AS (SELECT value FROM json_each(:doomed)),
shared(id, heir) AS (
    SELECT tip_id, chats.id FROM turns CROSS JOIN chats ON chats.tip_id = turns.id
    WHERE turns.chat_id IN doomed AND chats.id NOT IN doomed
    UNION
    SELECT turns.id, child.chat_id FROM turns CROSS JOIN turns AS child ON child.parent_id = turns.id
    WHERE turns.chat_id IN doomed AND child.chat_id NOT IN doomed
    UNION
    SELECT turns.parent_id, heir FROM shared CROSS JOIN turns ON turns.id = shared.id
    WHERE turns.parent_id IS NOT NULL AND turns.chat_id IN doomed
)
SELECT min(shared.heir), shared.id FROM shared CROSS JOIN turns ON turns.id = shared.id
WHERE turns.chat_id IN doomed GROUP BY shared.id
"""
_DOOMED = """
SELECT id FROM chats WHERE trashed_at IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM turns WHERE chat_id = chats.id AND status = 'running')
"""


def pin(store: Store, chat_id: str, is_pinned: bool = True) -> None:
    """Keep the chat at the head of the list, or no longer; ChatNotFoundError."""
    _set(store, chat_id, "is_pinned = ?", is_pinned)


def archive(store: Store, chat_id: str, is_archived: bool = True) -> None:
    """Take the chat out of the list (it is still found by search), or put it back; ChatNotFoundError."""
    _set(store, chat_id, "archived_at = ?", now_ms() if is_archived else None)


def trash(store: Store, chat_id: str) -> None:
    """Throw the chat away: neither listed nor found until it is restored; ChatNotFoundError."""
    _set(store, chat_id, "trashed_at = coalesce(trashed_at, ?)", now_ms())


def restore(store: Store, chat_id: str) -> None:
    """Take the chat out of the trash, to where it was before; ChatNotFoundError."""
    _set(store, chat_id, "trashed_at = ?", None)


def empty_trash(store: Store) -> int:
    """Delete for good what is in the trash, but for chats whose reply still runs; how many chats it was."""
    with store.writing() as conn:
        doomed = [chat_id for (chat_id,) in conn.execute(_DOOMED)]
        values = {"doomed": json.dumps(doomed)}
        conn.executemany("UPDATE turns SET chat_id = ? WHERE id = ?", conn.execute(_SHARED, values).fetchall())
        conn.execute("DELETE FROM turns WHERE chat_id IN (SELECT value FROM json_each(:doomed))", values)
        conn.execute("DELETE FROM chats WHERE id IN (SELECT value FROM json_each(:doomed))", values)
    return len(doomed)


def set_tags(store: Store, chat_id: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
    """Give the chat these tags and take those; ChatNotFoundError, TagError."""
    added, removed = [tag_of(text) for text in add], [tag_of(text) for text in remove]
    with store.writing() as conn:
        _require(conn, chat_id)
        conn.executemany("DELETE FROM tags WHERE chat_id = ? AND tag = ?", [(chat_id, tag) for tag in removed])
        conn.executemany("INSERT OR IGNORE INTO tags (chat_id, tag) VALUES (?, ?)", [(chat_id, tag) for tag in added])


def tag_of(text: str) -> str:
    """The tag that a person means: in lower case, one word; TagError."""
    tag = _folded(text)
    if not is_tag(tag):
        remedy = f"A tag is one word of at most {MAX_TAG_CHARS} characters that begins with neither + nor -."
        raise TagError(f"{text!r} cannot be a tag", remedy)
    return tag


def is_tag(text: str) -> bool:
    """Whether this is a tag as `tag_of` gives it."""
    is_word = text.isprintable() and not any(char.isspace() for char in text)
    return bool(text) and is_word and len(text) <= MAX_TAG_CHARS and text[0] not in "+-" and _folded(text) == text


def fork(store: Store, chat_id: str, turn_id: str | None) -> str:
    """The id of a new chat that goes on behind this turn (None: begins anew) and shares all turns up to it.

    ChatNotFoundError, TurnNotFoundError.
    """
    chat = store.chat(chat_id)
    tip_id = None if turn_id is None else store.turn(turn_id).id
    copy = store.create_chat(title=chat.title, model=chat.model, system=chat.system)
    _set(store, copy.id, "tip_id = ?", tip_id)
    return copy.id


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", clean_text(text).strip().casefold())


def _set(store: Store, chat_id: str, change: str, value: object) -> None:
    with store.writing() as conn:
        if not conn.execute(f"UPDATE chats SET {change} WHERE id = ?", (value, chat_id)).rowcount:
            raise refusals.no_chat(chat_id)


def _require(conn: sqlite3.Connection, chat_id: str) -> None:
    if not conn.execute("SELECT 1 FROM chats WHERE id = ?", (chat_id,)).fetchone():
        raise refusals.no_chat(chat_id)
