"""Titles of chats: the first words of a prompt, or what a model made of them, in one line."""

import re
import unicodedata

MAX_CHARS = 40
MAX_MODEL_CHARS = 60
UNTITLED = "Untitled"

_FENCE = re.compile(r"^\s*(```|~~~)")
_LEADING = re.compile(r"^(#{1,6}|>|[-*+]|\d{1,3}[.)])\s+")  # Markdown's headings, quotes and lists
_JOINERS = "\u200d\ufe0e\ufe0f"  # what binds two characters of an emoji, or chooses how the one before looks
_ENOUGH = 12  # a first line that is shorter says too little by itself


def first_words(prompt: str, max_chars: int = MAX_CHARS) -> str:
    """The first words of a prompt: of its text, else of its code; behind a paste those of the question; never empty."""
    lines = _lines(prompt)
    if lines and not _is_prose(lines[0]) and _is_request(lines[-1]):
        lines = lines[-1:]  # a paste, and behind it what is asked of it
    title = ""
    while lines and len(title) < _ENOUGH:
        title = f"{title} {lines.pop(0)}".strip()
    return cut(title, max_chars) or UNTITLED


def from_model(reply: str) -> str:
    """The title in a model's reply, without quotes and decoration; empty where there is none."""
    lines = _lines(reply)
    title = re.sub(r"^(chat )?title\s*:\s*", "", lines[0] if lines else "", flags=re.IGNORECASE)
    title = title.strip(" \t*_`#\"'“”‘’«»「」").rstrip(".。,;:")
    return cut(title, MAX_MODEL_CHARS)


def cut(text: str, max_chars: int) -> str:
    """`text`, or as many whole words of it as fit with an ellipsis; a word too long is cut between characters."""
    if len(text) <= max_chars:
        return text
    end = max_chars - 1
    space = text.rfind(" ", max_chars // 2, end + 1)
    if space >= 0:
        return text[:space].rstrip() + "…"
    while end > 1 and not _is_between(text, end):
        end -= 1
    return text[:end].rstrip() + "…"


def _lines(text: str) -> list[str]:
    """The lines that say something, each with single spaces; those inside fences only where there are no others."""
    outside: list[str] = []
    inside: list[str] = []
    is_code = False
    for line in text.splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        elif words := " ".join(_printable(line).split()):
            (inside if is_code else outside).append(words)
    return [_LEADING.sub("", line) for line in outside] or inside


def _is_prose(line: str) -> bool:
    """Whether people would write this: hardly a sign among the letters."""
    num_signs = sum(not (char.isalnum() or char.isspace() or char in ".,;:?!'’\"") for char in line)
    return line[:1].isalnum() and num_signs <= len(line) // 20


def _is_request(line: str) -> bool:
    """Whether this asks for something, by its length or its end; a script without spaces needs neither."""
    return _is_prose(line) and (line.count(" ") >= 3 or line[-1] in ".?!" or not line.isascii())


def _printable(text: str) -> str:
    return "".join(" " if unicodedata.category(char) == "Cc" else char for char in text)


def _is_between(text: str, index: int) -> bool:
    """Whether a cut before `index` parts two characters as people see them."""
    after = text[index]
    is_bound = unicodedata.category(after)[0] == "M" or after in _JOINERS or "\U0001f3fb" <= after <= "\U0001f3ff"
    flags = len(text[:index]) - len(text[:index].rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))
    is_half_a_flag = flags % 2 == 1 and "\U0001f1e6" <= after <= "\U0001f1ff"
    return not (is_bound or is_half_a_flag or text[index - 1] == "\u200d")
