"""The part of a text that shows the words somebody looked for.

Not FTS5's snippet(): it reads the text as it was indexed, which in scripts without spaces takes milliseconds a row.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from octavo_data.migrations import UNSPACED

_UNSPACED = re.compile(f"[{UNSPACED}]")
NUM_CHARS_BEFORE, NUM_CHARS_BEHIND = 40, 80


def snippet_of(text: str, words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The surroundings of the first place of the longest word that is found, and where all words are in them.

    The last word may be the beginning of one, which is then shown as a whole.
    A word that the index found by other rules than ours has no place; without any the text's beginning is shown.
    """
    folded = _folded(text)
    patterns = [*(_pattern(word) for word in words[:-1]), _pattern(words[-1], is_begun=True)]
    found = [pattern.search(folded) for pattern in sorted(patterns, key=lambda one: -len(one.pattern))]
    place = next((match.start() for match in found if match), 0)
    begin, end = _edge(text, place - NUM_CHARS_BEFORE), _edge(text, place + NUM_CHARS_BEHIND)
    head, tail = "…" if begin else "", "…" if end < len(text) else ""
    spans = {match.span() for pattern in patterns for match in pattern.finditer(folded, begin, end)}
    shift = len(head) - begin
    return head + text[begin:end] + tail, sorted((left + shift, right + shift) for left, right in spans)


def _pattern(word: str, *, is_begun: bool = False) -> re.Pattern[str]:
    """The word as a whole one, or the one that it begins; between its letters any signs will do, as for the index."""
    parts = re.findall(r"[^\W_]+", folded := _folded(word))
    if not parts:
        return re.compile(re.escape(folded))
    inside = r"[\W_]+".join(map(re.escape, parts))
    if _UNSPACED.search(word):
        return re.compile(inside)
    end = r"[^\W_]*" if is_begun else r"(?![^\W_])"
    return re.compile(r"(?<![^\W_])" + inside + end)


def _edge(text: str, index: int) -> int:
    """The index inside the text, moved to the next space if there is one near, so that no word is cut."""
    if not 0 < index < len(text):
        return min(max(index, 0), len(text))
    space = re.compile(r"\s").search(text, index - 1, index + 15)
    return space.end() if space else index


def _folded(text: str) -> str:
    """The text in lower case and without accents, character by character, so that places stay the same."""
    return text.lower() if text.isascii() else "".join(map(_fold, text))


@lru_cache(maxsize=4096)
def _fold(char: str) -> str:
    if char >= "\u2e80":
        return char
    return unicodedata.normalize("NFD", char)[0].lower()[0]
