"""Stop strings meet tokens: the cut is exact, also across tokens and inside the bytes of one character."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.reply_text import ReplyText


def decode(token_ids: Sequence[int]) -> str:
    """Every id is a byte of UTF-8."""
    return bytes(token_ids).decode("utf-8", errors="replace")


def said(text: str, stops: Sequence[str], size: int = 1) -> tuple[list[str], bool]:
    """What becomes visible with each token of `size` bytes, the end last, and whether a stop string ended it."""
    reply, ids = ReplyText(decode, stops), text.encode()
    pieces = []
    for start in range(0, len(ids), size):
        pieces.append(reply.add(ids[start : start + size]))
        if reply.is_over:
            break
    return [*pieces, reply.finish()], reply.is_over


@pytest.mark.parametrize(
    ("text", "stops", "pieces", "is_stopped"),
    [
        ("a€b", ("€",), ["a", "", "", "", ""], True),  # three tokens are one character, which never shows
        ("€1", ("€2",), ["", "", "", "€1", ""], False),  # held back until it cannot become a stop string
        ("x\n\ny", ("\n\n",), ["x", "", "", ""], True),
        ("ab", ("abc",), ["", "", "ab"], False),  # the end brings what was held back
    ],
)
def test_a_stop_string_across_tokens_is_cut_exactly(
    text: str, stops: tuple[str, ...], pieces: list[str], is_stopped: bool
) -> None:
    assert said(text, stops) == (pieces, is_stopped)


@given(st.text("aé€😀", max_size=20), st.lists(st.text("aé€😀", min_size=1, max_size=3), max_size=3), st.integers(1, 5))
def test_what_is_visible_is_the_text_before_the_first_stop_string(text: str, stops: list[str], size: int) -> None:
    pieces, is_stopped = said(text, stops, size)
    ends = [(text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text]
    assert ("".join(pieces), is_stopped) == (text[: min(ends)[1]] if ends else text, bool(ends))
