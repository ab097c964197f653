"""The rows of one text at one width; appending wraps only the last rows of its last line again."""

import re
from enum import Enum
from typing import NamedTuple

from octavo.ui.wrap import fold, wrap_words

_FENCE = re.compile(r"[ ]*(```+|~~~+)[^`\n]*$")


class RowKind(Enum):
    """How a row is drawn."""

    PROSE = 1
    CODE = 2
    FENCE = 3  # the line that opens or closes a code block


class Row(NamedTuple):
    """`text[start:end]` on one row."""

    start: int
    end: int
    kind: RowKind


class GrowingText:
    """A text that only grows, as rows; it must be plain already (see octavo.ui.plain)."""

    def __init__(self, width: int, text: str = "") -> None:
        self.width = max(2, width)  # a wide character must fit
        self.text = ""
        self.rows: list[Row] = []
        self._line_start = 0  # where the last line begins, in text
        self._line_row = 0  # its first row
        self._fence = ""  # what closes the code block that the last line is in, "" outside of one
        if text:
            self.extend(text)

    def extend(self, more: str) -> int:
        """Append `more`; returns the first row that changed."""
        self.text += more
        end = self._line_end()
        changed = self._first_changed(self._kind(end))
        start = self.rows[changed].start if changed < len(self.rows) else self._line_start
        del self.rows[changed:]
        self._wrap(start, end)
        while end < len(self.text):
            self._next_line(end)
            end = self._line_end()
            self._wrap(self._line_start, end)
        return changed

    def extract(self, first: tuple[int, int], last: tuple[int, int]) -> str:
        """The text from (row, column) up to (row, column), without the breaks that only wrapping made."""
        start, end = (min(self.rows[row].start + column, self.rows[row].end) for row, column in (first, last))
        return self.text[start:end]

    def row_at(self, offset: int) -> int:
        """The row that shows the character at `offset`."""
        return max((at for at, row in enumerate(self.rows) if row.start <= offset), default=0)

    def _first_changed(self, kind: RowKind) -> int:
        is_same_kind = self._line_row < len(self.rows) and self.rows[self._line_row].kind is kind
        # two rows, not one: a joiner may pull the first character of the last row back to the one before
        return max(self._line_row, len(self.rows) - 2) if is_same_kind else self._line_row

    def _wrap(self, start: int, end: int) -> None:
        kind = self._kind(end)
        wrap = wrap_words if kind is RowKind.PROSE else fold
        self.rows += [Row(start + a, start + b, kind) for a, b in wrap(self.text[start:end], self.width)]

    def _next_line(self, end: int) -> None:
        if self._kind(end) is RowKind.FENCE:
            self._fence = "" if self._fence else self._opener(end)
        self._line_start = end + 1
        self._line_row = len(self.rows)

    def _line_end(self) -> int:
        end = self.text.find("\n", self._line_start)
        return len(self.text) if end < 0 else end

    def _kind(self, end: int) -> RowKind:
        opener = self._opener(end)
        if not self._fence:
            return RowKind.FENCE if opener else RowKind.PROSE
        line = self.text[self._line_start : end] if opener else ""
        is_closing = opener.startswith(self._fence) and line.strip() == opener
        return RowKind.FENCE if is_closing else RowKind.CODE

    def _opener(self, end: int) -> str:
        found = _FENCE.match(self.text, self._line_start, end)
        return found[1] if found else ""
