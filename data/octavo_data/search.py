"""Full-text search over prompts and replies, for words as people type them."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from octavo_data.encoding import clean_text
from octavo_data.migrations import UNSPACED
from octavo_data.signs import HAS_SIGNS, SIGNS_OF_TURN, signs_of
from octavo_data.snippets import snippet_of
from octavo_data.store import Store

# The newest first: so FTS5 gives its rows, by number, and no more are read than are shown. By rank, a common word would
# have to be weighed in every turn that has it. CROSS JOIN keeps that order of the loops.
_BY_INDEX = """
SELECT chats.id, title, turns.id, turns.created_at, turns.prompt, turns.reply
FROM search CROSS JOIN turns ON turns.number = search.rowid CROSS JOIN chats ON chats.id = turns.chat_id
WHERE search MATCH ? AND trashed_at IS NULL{containing} ORDER BY search.rowid DESC LIMIT ?
"""
# Of turns that lack a sign no more is read than the index that says so.
_BY_READING = f"""
SELECT chats.id, title, turns.id, turns.created_at, turns.prompt, turns.reply
FROM turns INDEXED BY turns_by_signs CROSS JOIN chats ON chats.id = turns.chat_id
WHERE {HAS_SIGNS} AND {SIGNS_OF_TURN} & ? = ? AND trashed_at IS NULL{{containing}} ORDER BY number DESC LIMIT ?
"""
_WITH_SIGNS = f"""
 AND (
    SELECT {SIGNS_OF_TURN} & ? FROM turns INDEXED BY turns_by_signs
    WHERE number = search.rowid AND {HAS_SIGNS}
) = ?
"""
_CONTAINING = " AND (instr(turns.prompt, ?) OR instr(turns.reply, ?))"
_EACH_UNSPACED = re.compile(f"([{UNSPACED}])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A turn that has all words; `spans` are where they stand in the snippet, as (begin, end)."""

    chat_id: str
    title: str
    turn_id: str
    created_at: int
    snippet: str
    spans: tuple[tuple[int, int], ...]


def search(store: Store, words: str, limit: int = 20) -> list[Hit]:
    """The turns that have all the words, the newest first; the last word may be the beginning of one.

    Case and the accents of Latin letters do not matter. In scripts without spaces any part of a text is a word. A word
    without letters ("::", emoji) is looked for as it stands, anywhere in the text, which means to read those that have
    such signs. Running turns, chats in the trash, and no words at all give nothing. Raises StoreReadError.
    """
    parts = clean_text(words).replace("\0", " ").split()
    if not parts:
        return []
    sql, values = _query(parts)
    with store.reading() as conn:
        rows = conn.execute(sql, (*values, limit)).fetchall()
    return [_hit(parts, *row) for row in rows]


def _query(parts: Sequence[str]) -> tuple[str, list[object]]:
    indexed = [part for part in parts if is_indexed(part)]
    as_they_stand = [part for part in dict.fromkeys(parts) if not is_indexed(part)]
    signs = signs_of("".join(as_they_stand))
    values: list[object] = [signs, signs, *(part for part in as_they_stand for _ in ("prompt", "reply"))]
    containing = _CONTAINING * len(as_they_stand)
    if not indexed:
        return _BY_READING.format(containing=containing), values
    matched = _match(indexed, is_last_begun=is_indexed(parts[-1]))
    if not as_they_stand:
        return _BY_INDEX.format(containing=""), [matched]
    return _BY_INDEX.format(containing=_WITH_SIGNS + containing), [matched, *values]


def is_indexed(word: str) -> bool:
    """Whether the index surely splits this word as its tokenizer does text: letters that old Unicode tables know."""
    known = [unicodedata.ucd_3_2_0.category(char)[0] in "LN" for char in word if char.isalnum()]
    return bool(known) and all(known)


def _match(words: Sequence[str], *, is_last_begun: bool) -> str:
    """An expression of FTS5 in which every word is a quoted text, so that none of it is syntax."""
    spaced = [_EACH_UNSPACED.sub(r" \1 ", word) for word in words]
    quoted = ['"' + word.replace('"', '""') + '"' for word in spaced]
    return " ".join(quoted) + (" *" if is_last_begun else "")


def _hit(words: Sequence[str], chat_id: str, title: str, turn_id: str, created_at: int, prompt: str, reply: str) -> Hit:
    snippet, spans = snippet_of(f"{prompt}\n{reply}", words)
    return Hit(
        chat_id=chat_id, title=title, turn_id=turn_id, created_at=created_at, snippet=snippet, spans=tuple(spans)
    )
