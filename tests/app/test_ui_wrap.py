"""Laws of wrapping: nothing lost, nothing too wide, and a growing text looks like the whole text at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from octavo.ui.growing_text import GrowingText, RowKind
from octavo.ui.plain import encodable, one_line, plain
from octavo.ui.wrap import _wrap_wide, fold, wrap_words

ASCII_LINES = st.text("ab  ", max_size=60)
CLUSTERS = st.sampled_from([*"ab  é漢字。、🙂", "e\u0301", "👨\u200d👩", "❤\ufe0f"])
LINES = st.lists(CLUSTERS, max_size=60).map("".join)
PIECES = st.lists(st.text("ab  \n`~漢。🙂\u200d", max_size=12), max_size=12)
WIDTHS = st.integers(2, 24)


def rows(line: str, width: int) -> list[str]:
    return [line[start:end] for start, end in wrap_words(line, width)]


def test_words_move_whole_to_the_next_row() -> None:
    assert rows("one two three", 8) == ["one two", "three"]


def test_a_word_longer_than_a_row_is_folded() -> None:
    assert rows("xx abcdefgh", 5) == ["xx", "abcde", "fgh"]


def test_an_indent_stays_with_its_word() -> None:
    assert rows("    four score", 9) == ["    four", "score"]


def test_wide_characters_count_two_cells_and_break_between_each_other() -> None:
    assert rows("漢字かな交じり文", 7) == ["漢字か", "な交じ", "り文"]


def test_closing_punctuation_never_begins_a_row() -> None:
    assert rows("漢字漢。", 6) == ["漢字", "漢。"]


def test_an_emoji_is_never_split_from_its_joiners() -> None:
    family = "👨‍👩‍👧"
    assert rows(family * 3, 4) == [family * 2, family]


def test_code_is_folded_with_its_blanks() -> None:
    assert [("a  b  c"[start:end]) for start, end in fold("a  b  c", 3)] == ["a  ", "b  ", "c"]


@given(LINES, WIDTHS)
def test_no_row_is_wider_than_asked_and_only_blanks_are_left_out(line: str, width: int) -> None:
    parts = list(wrap_words(line, width))
    assert all(cell_len(line[start:end]) <= width for start, end in parts)
    assert "".join(line[start:end] for start, end in parts).replace(" ", "") == line.replace(" ", "")


@given(ASCII_LINES, WIDTHS)
def test_the_fast_path_breaks_as_the_general_one_does(line: str, width: int) -> None:
    assert list(wrap_words(line, width)) == list(_wrap_wide(line.rstrip(" "), width))


@given(PIECES, WIDTHS)
def test_growing_looks_like_the_whole_text_at_once(pieces: list[str], width: int) -> None:
    growing = GrowingText(width)
    for piece in pieces:
        before = list(growing.rows)
        changed = growing.extend(piece)
        assert growing.rows[:changed] == before[:changed]
    whole = GrowingText(width)
    whole.extend("".join(pieces))
    assert growing.rows == whole.rows or not pieces


def test_a_fence_and_its_code_are_known_while_they_grow() -> None:
    text = GrowingText(20)
    for piece in ("so:\n``", "`py\nx =", " 1\n``", "`\nend"):
        text.extend(piece)
    prose, code, fence = RowKind.PROSE, RowKind.CODE, RowKind.FENCE
    assert [row.kind for row in text.rows] == [prose, fence, code, fence, prose]


def test_a_longer_fence_holds_a_shorter_one() -> None:
    text = GrowingText(20, "````\n```\n````\nout")
    assert [row.kind.name for row in text.rows] == ["FENCE", "CODE", "FENCE", "PROSE"]


def test_extracting_leaves_out_the_breaks_of_wrapping_but_keeps_those_of_the_text() -> None:
    text = GrowingText(8, "one two three\nfour")
    assert text.extract((0, 4), (2, 2)) == "two three\nfo"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("a\r\nb\rc\x00\x7f\x9b", "a\nb\nc␀␡�"),
        ("\tx\u2028y\u202ez\ud800", "    x\ny�z�"),
        ("[/bold] [red]", "[/bold] [red]"),
    ],
)
def test_control_characters_are_shown_and_never_sent(raw: str, shown: str) -> None:
    assert plain(raw) == shown


def test_a_title_is_one_line() -> None:
    assert one_line(" a\n\tb \x1b ") == "a b ␛"


def test_lone_surrogates_are_replaced_before_they_are_copied() -> None:
    assert encodable("a\ud800b") == "a?b"
