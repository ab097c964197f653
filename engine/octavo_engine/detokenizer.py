"""Turns sampled ids into text as they come: never half a character, never a word taken back.

The law: the pieces joined equal `decode(all ids)`.
"""

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
REPLACEMENT = "\ufffd"


class Detokenizer:
    """The text of one reply.

    Ids are decoded behind an anchor, an earlier id whose text is out already, because many tokenizers write a first
    token differently (without its leading space). Text that ends in a replacement character is held back: the bytes
    of a character may be spread over several tokens.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._anchor = 0  # ids before it are done with
        self._read = 0  # ids before it are visible
        self._num_visible = 0  # characters given out

    def add(self, token_ids: Sequence[int]) -> str:
        """The text that becomes visible with these ids."""
        self._ids.extend(token_ids)
        before = self._decode(self._ids[self._anchor : self._read])
        window = self._decode(self._ids[self._anchor :])
        if len(window) <= len(before) or window.endswith(REPLACEMENT) or not window.startswith(before):
            return ""
        self._anchor, self._read = self._read, len(self._ids)
        return self._give(window[len(before) :])

    def finish(self) -> str:
        """What was held back: the end of the reply as it stands."""
        rest = self._decode(self._ids)[self._num_visible :]
        self._read = len(self._ids)
        return self._give(rest)

    def _give(self, text: str) -> str:
        self._num_visible += len(text)
        return text
