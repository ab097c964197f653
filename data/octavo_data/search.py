"""Full-text search over prompts and replies, for words as people type them."""

import re
import sqlite3
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from octavo_data.encoding import clean_text
from octavo_data.store import Store

NUM_SNIPPET_TOKENS = 16
NUM_CHARS_AROUND = 40  # of a word that is looked for in the text itself

_BEGIN, _END = "\ufdd0", "\ufdd1"  # noncharacters, which no text has to hold
# Scripts that put no spaces between words, or whose words begin alike and end in many ways: Thai to Tibetan, Burmese,
# Khmer, the Tai scripts, Chinese, Japanese, Yi, Korean.
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u2e80-\ua4cf\uaa60-\uaadf\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)

# The newest first: so FTS5 gives its rows, by number, and no more are read than are shown. By rank, a common word would
# have to be weighed in every turn that has it. CROSS JOIN keeps that order of the loops.
_BY_INDEX = f"""
SELECT chats.id AS chat_id, title, turns.id AS turn_id, turns.created_at,
    snippet(search, -1, '{_BEGIN}', '{_END}', '…', {NUM_SNIPPET_TOKENS}) AS snippet
FROM search CROSS JOIN turns ON turns.number = search.rowid CROSS JOIN chats ON chats.id = turns.chat_id
WHERE search MATCH ? AND trashed_at IS NULL{{containing}} ORDER BY search.rowid DESC LIMIT ?
"""
_BY_READING = """
SELECT chats.id AS chat_id, title, turns.id AS turn_id, turns.created_at, prompt || char(10) || reply AS snippet
FROM turns CROSS JOIN chats ON chats.id = turns.chat_id
WHERE status <> 'running' AND trashed_at IS NULL{containing} ORDER BY number DESC LIMIT ?
"""
_CONTAINING = " AND (instr(turns.prompt, ?) OR instr(turns.reply, ?))"


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

    Case and the accents of Latin letters do not matter. A word without letters of a script with spaces (Chinese, emoji,
    "::") is looked for as it stands, anywhere in the text, which means to read that. Running turns, chats in the trash,
    and no words at all give nothing. Raises StoreReadError.
    """
    parts = clean_text(words).replace("\0", " ").split()
    if not parts:
        return []
    indexed = [part for part in parts if is_indexed(part)]
    as_they_stand = [part for part in parts if not is_indexed(part)]
    values = [part for part in as_they_stand for _ in ("prompt", "reply")]
    containing = _CONTAINING * len(as_they_stand)
    with store.reading() as conn:
        if not indexed:
            rows = conn.execute(_BY_READING.format(containing=containing), (*values, limit))
            return [_hit(row, *_around(row["snippet"], as_they_stand)) for row in rows]
        match = _match(indexed, is_last_begun=is_indexed(parts[-1]))
        rows = conn.execute(_BY_INDEX.format(containing=containing), (match, *values, limit))
        return [_hit(row, *_unmarked(row["snippet"])) for row in rows]


def is_indexed(word: str) -> bool:
    """Whether the index surely splits this word as its tokenizer does text: letters that old Unicode tables know."""
    known = [unicodedata.ucd_3_2_0.category(char)[0] in "LN" for char in word if char.isalnum()]
    return bool(known) and all(known) and not _UNSPACED.search(word)


def _match(words: Sequence[str], *, is_last_begun: bool) -> str:
    """An expression of FTS5 in which every word is a quoted text, so that none of it is syntax."""
    quoted = ['"' + word.replace('"', '""') + '"' for word in words]
    return " ".join(quoted) + (" *" if is_last_begun else "")


def _hit(row: sqlite3.Row, snippet: str, spans: Sequence[tuple[int, int]]) -> Hit:
    return Hit(
        chat_id=row["chat_id"],
        title=row["title"],
        turn_id=row["turn_id"],
        created_at=row["created_at"],
        snippet=snippet,
        spans=tuple(spans),
    )


def _unmarked(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """The snippet without our marks, and where they were."""
    text, spans, begin = "", [], 0
    for piece in re.split(f"([{_BEGIN}{_END}])", marked):
        if piece == _BEGIN:
            begin = len(text)
        elif piece == _END:
            spans.append((begin, len(text)))
        else:
            text += piece
    return text, spans


def _around(text: str, words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text around the first place of the first word, and where all the words are in it."""
    place = text.find(words[0])
    begin, end = max(0, place - NUM_CHARS_AROUND), place + len(words[0]) + NUM_CHARS_AROUND
    snippet = ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")
    found = {match.span() for word in words for match in re.finditer(re.escape(word), snippet)}
    return snippet, sorted(found)
