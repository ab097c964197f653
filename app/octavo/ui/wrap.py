"""Breaks one line of text into rows of at most so many cells, where each row depends on nothing before its start.

That law lets a growing line be wrapped again from its last rows only. Wide characters (CJK, emoji) count two cells,
a character is never split from its joiners, and a row may end between two wide characters.
"""

from collections.abc import Iterator

from rich.cells import split_graphemes

Row = tuple[int, int]  # start and end in the line; blanks at a break belong to neither row
_Grapheme = tuple[int, int, int]  # start and end in the line, cells

_NEVER_FIRST = frozenset("、。，．：；！？）］｝」』】》〉”’…ー々っゃゅょッャュョ")


def wrap_words(line: str, width: int) -> Iterator[Row]:
    """Yield the rows of `line`, at least one, broken at blanks where possible; an indent stays with its word."""
    line = line.rstrip(" ")
    if not line.isascii():
        yield from _wrap_wide(line, width)
    elif len(line) <= width:
        yield 0, len(line)
    else:
        yield from _wrap_ascii(line, width)


def fold(line: str, width: int) -> Iterator[Row]:
    """Yield the rows of `line`, at least one, broken wherever a row is full (for code)."""
    if line.isascii():
        for at in range(0, max(len(line), 1), width):
            yield at, min(at + width, len(line))
        return
    start = cells = 0
    for begin, _, size in split_graphemes(line)[0]:
        if cells + size > width and begin > start:
            yield start, begin
            start, cells = begin, 0
        cells += size
    yield start, len(line)


def _wrap_ascii(line: str, width: int) -> Iterator[Row]:
    start = 0
    while len(line) - start > width:
        cut = line.rfind(" ", _skip_blanks(line, start), start + width + 1)
        if cut < 0:
            yield start, start + width
            start += width
        else:
            yield start, start + len(line[start:cut].rstrip(" "))
            start = _skip_blanks(line, cut)
    yield start, len(line)


def _wrap_wide(line: str, width: int) -> Iterator[Row]:
    row_start = row_end = cells = 0
    for unit in _units(line):
        cells += unit[0][0] - row_end  # the blanks between
        if row_end > row_start and cells + sum(size for _, _, size in unit) > width:
            yield row_start, row_end
            row_start, cells = unit[0][0], 0
        for begin, _, size in unit:
            if cells + size > width and begin > row_start:  # the unit alone is too long
                yield row_start, begin
                row_start, cells = begin, 0
            cells += size
        row_end = unit[-1][1]
    yield row_start, row_end


def _units(line: str) -> Iterator[list[_Grapheme]]:
    """The pieces that stay together: words, the first with its indent, and single wide characters."""
    unit: list[_Grapheme] = []
    has_word = False  # in this unit; before that it may be an indent
    is_first = True
    for grapheme in split_graphemes(line)[0]:
        begin, end, size = grapheme
        if line[begin:end] == " " and not (is_first and not has_word):
            if has_word:
                yield unit
            unit, has_word, is_first = [], False, False
            continue
        if has_word and 2 in (size, unit[-1][2]) and line[begin] not in _NEVER_FIRST:
            yield unit
            unit, is_first = [], False
        has_word = has_word or line[begin:end] != " "
        unit.append(grapheme)
    if unit:
        yield unit


def _skip_blanks(line: str, at: int) -> int:
    while at < len(line) and line[at] == " ":
        at += 1
    return at
