"""Makes text of users and models harmless to draw: no control character reaches the terminal, none goes unseen."""

import re

# C0 but tab and newline, DEL, C1, bidi controls (they reorder what a person reads), line separators, lone surrogates
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_TAB = "    "  # a fixed width: text that is cleaned in pieces has no column


def plain(text: str) -> str:
    """Return `text` with "\\n" as its only control character; the others become visible signs of one cell."""
    if not _UNSAFE.search(text):
        return text
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return `text` fit for a title: one line, without runs of blanks."""
    return plain(" ".join(text.split()))


def encodable(text: str) -> str:
    """Return `text` without lone surrogates, which no terminal and no clipboard can take."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == 0x09:
        return _TAB
    if code in (0x0D, 0x2028, 0x2029):
        return "\n"
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ␛ for escape
    return "␡" if code == 0x7F else "�"
