"""A stop string ends the text at the first moment at which it is complete, however the text is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.stop_strings import StopStrings

TEXTS = st.text("abé", max_size=30)
STOPS = st.lists(st.text("abé", min_size=1, max_size=4), max_size=4)


def said(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    """What each piece makes visible, the end last, and whether a stop string was met."""
    stop_strings, visible = StopStrings(stops), []
    for piece in pieces:
        text, is_stopped = stop_strings.add(piece)
        visible.append(text)
        if is_stopped:
            return visible, True
    return [*visible, stop_strings.finish()], False


def naive(stops: list[str], text: str) -> tuple[str, bool]:
    """The text before the stop string that ends first; of two that end together, before the longer."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@pytest.mark.parametrize(
    ("stops", "pieces", "visible", "is_stopped"),
    [
        (["END"], ["one EN", "D two"], ["one ", ""], True),
        (["END"], ["one EN", "T two"], ["one ", "ENT two", ""], False),
        (["\n\n"], ["a\n", "b\n", "\nc"], ["a", "\nb", ""], True),
        (["€!"], ["5 €", "!"], ["5 ", ""], True),
        (["abab"], ["aba", "cabab"], ["", "abac"], True),
        (["abcd", "bc"], ["abcd"], ["a"], True),
        (["aab"], ["aa", "ab"], ["", "a"], True),
        (["x"], ["held back: nothing"], ["held back: nothing", ""], False),
        ([], ["all", "of it"], ["all", "of it", ""], False),
    ],
)
def test_a_stop_string_never_leaks(stops: list[str], pieces: list[str], visible: list[str], is_stopped: bool) -> None:
    assert said(stops, pieces) == (visible, is_stopped)


@given(STOPS, st.lists(TEXTS, max_size=8))
def test_the_cut_does_not_depend_on_the_pieces(stops: list[str], pieces: list[str]) -> None:
    visible, is_stopped = said(stops, pieces)
    assert ("".join(visible), is_stopped) == naive(stops, "".join(pieces))


@given(STOPS, TEXTS)
def test_no_more_is_held_back_than_could_become_a_stop_string(stops: list[str], text: str) -> None:
    visible, is_stopped = StopStrings(stops).add(text)
    beginnings = {stop[:size] for stop in stops for size in range(1, len(stop))}
    if not is_stopped:
        assert len(text) - len(visible) == max((len(b) for b in beginnings if text.endswith(b)), default=0)
