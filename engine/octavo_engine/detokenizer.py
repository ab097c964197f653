"""Turns sampled ids into text as they come: never half a character, never a word taken back.

The law: the pieces joined equal `decode(all ids)`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from octavo_engine.prefix_index import common_prefix

Decode = Callable[[Sequence[int]], str]
REPLACEMENT = "\ufffd"
MIN_STRETCH = 8
"""Ids of a stretch: shortening the window decodes it once more, so not at every token."""

NUM_PROBED = 1024
"""Byte tokens are among the first ids of a vocabulary, behind a few hundred special ones at most."""


class Detokenizer:
    """The text of one reply.

    It decodes a window of the newest ids: one stretch whose text is out already, because many tokenizers write a
    first token differently (without its leading space), and what came since. A stretch ends where the text is closed:
    no later id can change it. Held back are trailing replacement characters, since the bytes of a character may be
    spread over several tokens, and whatever `spoiler`, if there is one (see `find_spoiler`), would take back.
    """

    def __init__(self, decode: Decode, spoiler: int | None = None) -> None:
        self._decode = decode
        self._spoiler = spoiler
        self._window: list[int] = []
        self._num_closed = 0  # leading ids of the window whose text is closed
        self._num_shown = 0  # leading characters of the window's text that are out

    def add(self, token_ids: Sequence[int]) -> str:
        """The text that becomes visible with these ids."""
        self._window.extend(token_ids)
        text = self._decode(self._window)
        is_plain = self._spoiler is None and not text.endswith(REPLACEMENT)
        num_final = len(text) if is_plain else self._num_final(text)
        shown = text[self._num_shown : num_final]
        self._num_shown = max(self._num_shown, num_final)
        if num_final == len(text) and len(self._window) - self._num_closed >= MIN_STRETCH:
            self._shorten()
        return shown

    def finish(self) -> str:
        """What was held back: the end of the reply as it stands."""
        text = self._decode(self._window)
        rest = text[self._num_shown :]
        self._num_shown = len(text)
        return rest

    def _num_final(self, text: str) -> int:
        """How many characters of the window's text stay, whatever comes next."""
        num_whole = len(text.rstrip(REPLACEMENT))
        if self._spoiler is None:
            return num_whole
        return min(num_whole, common_prefix(text, self._decode([*self._window, self._spoiler])))

    def _shorten(self) -> None:
        """Let the window begin at its newest stretch. One without text cannot stand first, since the id behind it
        would be written as a first one; if it has none even when doubled (special tokens), it is not needed at all.
        """
        stretch = self._window[self._num_closed :]
        if text := self._decode(stretch):
            self._window, self._num_shown = stretch, len(text)
        elif not self._decode(stretch * 2):
            del self._window[self._num_closed :]
        self._num_closed = len(self._window)


def find_spoiler(decode: Decode) -> int | None:
    """An id that takes finished text back when it comes next, or None where no id can.

    With sentencepiece's byte fallback the bytes of a run are one text or, if it is not valid UTF-8, all replacement
    characters: even a letter said as a byte token turns into one when an invalid byte follows.
    """
    texts = _texts(decode)
    broken = [token_id for token_id, text in enumerate(texts) if text == REPLACEMENT]
    letters = [token_id for token_id, text in enumerate(texts) if len(text) == 1 and text.isascii()]
    for spoiler in {*broken[:1], *broken[-1:]}:
        if any(not decode([letter, spoiler]).startswith(texts[letter]) for letter in letters):
            return spoiler
    return None


def _texts(decode: Decode) -> list[str]:
    """What the first ids say alone; a vocabulary may be shorter, and what is behind its end may raise."""
    texts: list[str] = []
    with suppress(LookupError, OverflowError, TypeError, ValueError):
        texts.extend(decode([token_id]) for token_id in range(NUM_PROBED))
    return texts
