"""The formats that chats are exported to, each as pieces of text that may be written as they come."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from octavo_data.exchange.entries import FORMAT, VERSION, ChatEntry, path_to_tip
from octavo_data.exchange.markdown import to_markdown
from octavo_data.exchange.page import to_html

Exporter = Callable[[Iterable[ChatEntry]], Iterator[str]]


def to_json(chats: Iterable[ChatEntry]) -> Iterator[str]:
    """Our own format, which an import takes back without loss; one chat a line."""
    yield f'{{"format": "{FORMAT}", "version": {VERSION}, "chats": ['
    for index, chat in enumerate(chats):
        yield (",\n" if index else "\n") + msgspec.json.encode(chat).decode()
    yield "\n]}\n"


def to_jsonl(chats: Iterable[ChatEntry]) -> Iterator[str]:
    """One chat a line as messages of OpenAI's API, from the root to the tip; an empty reply is no message."""
    for chat in chats:
        yield msgspec.json.encode({"messages": _messages(chat)}).decode() + "\n"


def num_left_out(chat: ChatEntry) -> int:
    """How many turns lie on other branches, which only our own format holds."""
    return len(chat.turns) - len(path_to_tip(chat))


def _messages(chat: ChatEntry) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": chat.system}] if chat.system else []
    for turn in path_to_tip(chat):
        messages.append({"role": "user", "content": turn.prompt})
        if turn.reply:
            messages.append({"role": "assistant", "content": turn.reply})
    return messages


EXPORTERS: dict[str, Exporter] = {"md": to_markdown, "json": to_json, "jsonl": to_jsonl, "html": to_html}
