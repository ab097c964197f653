"""Laws of what is pasted: it is one text, whatever it holds and however it comes; what is typed stays keys."""

from itertools import pairwise

from hypothesis import assume, example, given
from hypothesis import strategies as st
from textual import events

from octavo.ui.pasting import BEGIN, END, ESCAPE, PasteParser

TEXTS = st.text(st.sampled_from([*"ab\r\n\t[2;01~m\x11é🙂", ESCAPE]), max_size=80)
TYPED = st.text("xyz\r", max_size=5)


def heard(pieces: list[str]) -> list[str]:
    """What comes of such a stream: a paste in brackets, each key as its character."""
    parser = PasteParser()
    told = []
    for message in (message for piece in pieces if piece for message in parser.feed(piece)):
        assert isinstance(message, events.Paste | events.Key)
        told.append(f"<{message.text}>" if isinstance(message, events.Paste) else message.character or "")
    return told


@given(before=TYPED, text=TEXTS, behind=TYPED, cuts=st.lists(st.integers(0, 100), max_size=6))
@example(before="", text="a \x1b[1mb\x1b[0m\rc", behind="\r", cuts=[])
@example(before="x", text="a\x1b", behind="y", cuts=[3, 12, 14])
@example(before="", text="\x1b\x1b[201", behind="", cuts=[8])
def test_a_paste_is_one_text_without_escapes(before: str, text: str, behind: str, cuts: list[int]) -> None:
    assume(END not in text)
    stream = before + BEGIN + text + END + behind
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    told = heard([stream[begin:end] for begin, end in pairwise(places)])
    pasted = text.replace(ESCAPE, "")
    assert [one for one in told if one != "<>"] == [*before, *([f"<{pasted}>"] if pasted else []), *behind]


def test_an_escape_key_is_one() -> None:
    parser = PasteParser()
    keys = [message for piece in (ESCAPE, "\x1b[A", "") for message in parser.feed(piece)]
    assert [key.key for key in keys if isinstance(key, events.Key)] == ["escape", "up"]
