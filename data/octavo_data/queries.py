"""The SQL that reads chats and turns, and the records that its rows become."""

import sqlite3
from collections.abc import Sequence

from octavo_data.encoding import ID_BYTES, clean_text, pack_ids
from octavo_data.records import Chat, Shelf, TemplateUse, Turn, TurnCounts, TurnStatus, TurnTimings

_STATUS = {status.value: status for status in TurnStatus}

_CHATS = """
SELECT chats.id, title, chats.model, system, chats.created_at, updated_at, tip_id,
       coalesce(tip.depth, 0) AS num_turns, tip.status AS last_status, is_pinned, archived_at, trashed_at,
       (SELECT group_concat(tag, ' ') FROM tags WHERE tags.chat_id = chats.id) AS tags
FROM chats LEFT JOIN turns AS tip ON tip.id = chats.tip_id
"""
# No blobs here: a list of turns is for people, and the ids of a long chat weigh more than its text.
_TURN_COLUMNS = """
SELECT turns.id, chat_id, parent_id, prompt, reply, status, stop_reason, error, kept_tokens,
       turns.model, template, template_hash,
       prompt_tokens, cached_tokens, computed_tokens, completion_tokens,
       queue_ms, first_token_ms, total_ms, tokens_per_s, created_at, ended_at
"""

_BY_ACTIVITY = "updated_at DESC, chats.id DESC"
_SHELVES = {
    Shelf.OPEN: ("archived_at IS NULL AND trashed_at IS NULL", f"is_pinned DESC, {_BY_ACTIVITY}"),
    Shelf.ARCHIVED: ("archived_at IS NOT NULL AND trashed_at IS NULL", "archived_at DESC, chats.id DESC"),
    Shelf.TRASH: ("trashed_at IS NOT NULL", "trashed_at DESC, chats.id DESC"),
    Shelf.ALL: ("trashed_at IS NULL", _BY_ACTIVITY),
}
LAST_CHAT = f"{_CHATS} WHERE {_SHELVES[Shelf.OPEN][0]} ORDER BY {_BY_ACTIVITY} LIMIT 1"
CHAT_BY_ID = f"{_CHATS} WHERE chats.id = ?"
CHATS_BY_PREFIX = f"{_CHATS} WHERE chats.id >= ? AND chats.id < ? ORDER BY chats.id LIMIT ?"
TURN_BY_ID = f"{_TURN_COLUMNS} FROM turns WHERE turns.id = ?"

# Parents are walked, not chat_id: a fork shares turns with the chat that it came from. CROSS JOIN fixes the order of
# the loops, so that each parent is one look-up and the table is never scanned.
PATH = f"""
WITH RECURSIVE path(id, parent) AS (
    SELECT id, parent_id FROM turns WHERE id = ?
    UNION ALL SELECT turns.id, turns.parent_id FROM path CROSS JOIN turns ON turns.id = path.parent
)
{_TURN_COLUMNS} FROM path CROSS JOIN turns ON turns.id = path.id ORDER BY depth
"""

# Stops at the turn that keeps nothing of its parent: what came before it is not in the ids.
TOKEN_IDS = """
WITH RECURSIVE path(id, depth, parent, kept_tokens, prompt_ids, reply_ids) AS (
    SELECT id, depth, parent_id, kept_tokens, prompt_ids, reply_ids FROM turns WHERE id = ?
    UNION ALL
    SELECT turns.id, turns.depth, turns.parent_id, turns.kept_tokens, turns.prompt_ids, turns.reply_ids
    FROM path CROSS JOIN turns ON turns.id = path.parent WHERE path.kept_tokens > 0
)
SELECT id, kept_tokens, prompt_ids, reply_ids FROM path ORDER BY depth
"""

PARENT = f"""
SELECT depth, kept_tokens + (length(prompt_ids) + length(reply_ids)) / {ID_BYTES} AS num_ids FROM turns WHERE id = ?
"""
RUNNING_HOSTS = "SELECT DISTINCT host FROM turns WHERE status = 'running'"

FLUSH_TURN = """
UPDATE turns SET reply = :reply, reply_ids = :reply_ids, completion_tokens = :completion_tokens
WHERE id = :id AND status = 'running'
"""
END_TURN = """
UPDATE turns SET status = :status, stop_reason = :stop_reason, error = :error, reply = :reply, reply_ids = :reply_ids,
    prompt_tokens = :prompt_tokens, cached_tokens = :cached_tokens, computed_tokens = :computed_tokens,
    completion_tokens = :completion_tokens, queue_ms = :queue_ms, first_token_ms = :first_token_ms,
    total_ms = :total_ms, tokens_per_s = :tokens_per_s, ended_at = :now
WHERE id = :id AND status = 'running'
"""
INTERRUPT_TURNS = """
UPDATE turns SET status = 'interrupted', stop_reason = 'interrupted', ended_at = ? WHERE host = ? AND status = 'running'
"""
RENAME_CHAT = "UPDATE chats SET title = iif(coalesce(?2, title) = title, ?1, title) WHERE id = ?3"
# max(): a clock that was set back must not move a chat down the list.
TOUCH_CHAT = "UPDATE chats SET updated_at = max(updated_at, ?) WHERE id = ?"
TOUCH_CHAT_OF_TURN = f"{TOUCH_CHAT.removesuffix('?')}(SELECT chat_id FROM turns WHERE id = ?)"


def chats_on(shelf: Shelf, num_tags: int = 0) -> str:
    """The query for the chats on a shelf that have all of so many tags; its values are those tags and a limit."""
    where, order = _SHELVES[shelf]
    tagged = " AND chats.id IN (SELECT chat_id FROM tags WHERE tag = ?)" * num_tags
    return f"{_CHATS} WHERE {where}{tagged} ORDER BY {order} LIMIT ?"


def chat_of(row: sqlite3.Row) -> Chat:
    """The chat of a row of one of the queries for chats, whose columns are in the order of its fields."""
    *before, status, is_pinned, archived_at, trashed_at, tags = row
    sorted_tags = tuple(sorted(tags.split())) if tags else ()
    values = (*before, status and _STATUS[status], bool(is_pinned), archived_at, trashed_at, sorted_tags)
    return Chat(*values)


def turn_of(row: sqlite3.Row) -> Turn:
    """The turn of a row of one of the queries for turns, whose columns are in the order of its fields."""
    template, content_hash = row[10:12]
    use = None if template is None else TemplateUse(template, content_hash)
    measured = (TurnCounts(*row[12:16]), TurnTimings(*row[16:20]))
    values = (*row[:5], _STATUS[row[5]], *row[6:10], use, *measured, *row[20:])
    return Turn(*values)


def reply_values(reply: str, reply_ids: Sequence[int]) -> dict[str, object]:
    """The columns of a reply so far; FLUSH_TURN counts its ids, END_TURN is told the count."""
    return {"reply": clean_text(reply), "reply_ids": pack_ids(reply_ids), "completion_tokens": len(reply_ids)}
