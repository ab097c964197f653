"""Chats as Markdown: front matter, one heading a message, the text as it was said."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from octavo_data.exchange.entries import ChatEntry, TurnEntry, path_to_tip
from octavo_data.records import TurnStatus

_LINE_END = re.compile(r"\r\n|\n|\r")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_RAW_TAGS = "script|pre|style|textarea"
_RAW_HTML = (  # how a block of HTML begins that goes on over blank lines, and where it ends
    (re.compile(rf" {{0,3}}<(?:{_RAW_TAGS})(?:[ \t>]|$)", re.I), re.compile(rf"</(?:{_RAW_TAGS})>", re.I)),
    (re.compile(r" {0,3}<!--"), re.compile(r"-->")),
    (re.compile(r" {0,3}<\?"), re.compile(r"\?>")),
    (re.compile(r" {0,3}<!\[CDATA\["), re.compile(r"\]\]>")),
    (re.compile(r" {0,3}<![A-Za-z]"), re.compile(r">")),
)
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def to_markdown(chats: Iterable[ChatEntry]) -> Iterator[str]:
    """One document a chat, one after the other, each from the root to the tip."""
    for index, chat in enumerate(chats):
        yield ("\n" if index else "") + _document(chat)


def _document(chat: ChatEntry) -> str:
    parts = [_front_matter(chat), f"# {_one_line(chat.title)}"]
    if chat.system:
        parts += ["## System", _safe(chat.system)]
    for turn in path_to_tip(chat):
        parts += ["## You", _safe(turn.prompt), f"## {_one_line(turn.model)}", _safe(turn.reply), _remark(turn)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(chat: ChatEntry) -> str:
    created = datetime.fromtimestamp(chat.created_at / 1000, UTC).isoformat(timespec="milliseconds")
    fields = {"title": chat.title, "id": chat.id, "model": chat.model, "created": created, "system": chat.system}
    tags = [f"tags: [{', '.join(map(_quoted, chat.tags))}]"] if chat.tags else []
    return "\n".join(["---", *(f"{name}: {_quoted(value)}" for name, value in fields.items()), *tags, "---"])


def _quoted(text: str) -> str:
    """A string of YAML, which is one of JSON."""
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _safe(text: str) -> str:
    """The text itself; in a fence of its own if a block that it leaves open would swallow what comes after it."""
    if not _is_left_open(text):
        return text
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}text\n{text}\n{fence}"


def _is_left_open(text: str) -> bool:
    end: re.Pattern[str] | None = None
    for line in _LINE_END.split(text):
        if end is None:
            end, line = _end_of_block(line)
        if end is not None and end.search(line):
            end = None
    return end is not None


def _end_of_block(line: str) -> tuple[re.Pattern[str] | None, str]:
    """What ends the block that begins in this line, if one does, and the rest of the line in which that may be."""
    if fence := _FENCE.match(line):
        mark = fence[1]
        return re.compile(rf"^ {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*$"), ""
    for start, end in _RAW_HTML:
        if found := start.match(line):
            return end, line[found.end() :]
    return None, line


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _remark(turn: TurnEntry) -> str:
    if turn.status is TurnStatus.DONE:
        return ""
    return f"*({turn.status.value}{': ' + _one_line(turn.error) if turn.error else ''})*"
