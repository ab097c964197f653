"""JSONL of messages as OpenAI's API takes them: one `{"messages": […]}` a line, each a chat."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from octavo_data.exchange.entries import ChatEntry, TurnEntry
from octavo_data.exchange.errors import BadContentError
from octavo_data.exchange.foreign import Defaults, Taken, finished_turn, foreign_chat, stable_id

_KIND = "OpenAI JSONL"
_SYSTEM = ("system", "developer")
_TOOLS = ("tool", "function")


@dataclass(slots=True)
class _Chat:
    """The messages of one line, as far as they are read."""

    system: list[str] = field(default_factory=list)
    turns: list[tuple[str, list[str]]] = field(default_factory=list)


def read_openai(text: str, defaults: Defaults) -> Taken:
    """All chats of the file; BadContentError with the line and the pointer in it."""
    taken = Taken(_KIND)
    seen: Counter[str] = Counter()
    for place, line in _lines(text):
        try:
            chat = _read(_messages(line), taken.skipped)
        except BadContentError as error:
            raise error.within(place) from None
        key = f"{line}\0{seen[line]}"  # two equal lines are two chats
        seen[line] += 1
        if chat.turns:
            taken.chats.append(_entry(chat, key, defaults))
        else:
            taken.skipped["empty chat"] += 1
    return taken


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", line.strip()


def _messages(line: str) -> list[Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadContentError("", f"not JSON: {error}") from None
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list):
        raise BadContentError("", 'no object with a list of "messages"')
    return messages


def _read(messages: list[Any], skipped: Counter[str]) -> _Chat:
    chat = _Chat()
    for index, message in enumerate(messages):
        place = f", /messages/{index}"
        if not isinstance(message, dict):
            raise BadContentError(place, "not an object")
        _take(chat, message, place, skipped)
    return chat


def _take(chat: _Chat, message: dict[str, Any], place: str, skipped: Counter[str]) -> None:
    role = message.get("role")
    text = _text(message.get("content"), f"{place}/content", skipped)
    if message.get("tool_calls") or message.get("function_call"):
        skipped["tool call"] += 1
    if role in _TOOLS:
        skipped["tool message"] += 1
    elif role in _SYSTEM and not chat.turns:
        chat.system.append(text)
    elif role in _SYSTEM:
        skipped["later system message"] += 1
    elif role == "user":
        chat.turns.append((text, []))
    elif role == "assistant":
        _reply(chat, text, skipped)
    else:
        raise BadContentError(f"{place}/role", f"unknown role {role!r}")


def _reply(chat: _Chat, text: str, skipped: Counter[str]) -> None:
    if not text:
        skipped["empty message"] += 1
        return
    if not chat.turns:
        chat.turns.append(("", []))  # a greeting, before any question
    chat.turns[-1][1].append(text)


def _text(content: Any, place: str, skipped: Counter[str]) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise BadContentError(place, "neither text nor a list of parts")
    texts = []
    for index, part in enumerate(content):
        if not isinstance(part, dict):
            raise BadContentError(f"{place}/{index}", "not an object")
        if isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            skipped["image" if part.get("type") == "image_url" else "other attachment"] += 1
    return "\n".join(texts)


def _entry(chat: _Chat, key: str, defaults: Defaults) -> ChatEntry:
    turns: list[TurnEntry] = []
    for index, (prompt, replies) in enumerate(chat.turns):
        turn_id = stable_id(defaults.time_ms, _KIND, key, str(index))
        parent_id = turns[-1].id if turns else None
        turns.append(finished_turn(turn_id, parent_id, prompt, "\n\n".join(replies), defaults.time_ms))
    chat_id = stable_id(defaults.time_ms, _KIND, key)
    return foreign_chat(chat_id, "", defaults.model, turns, system="\n\n".join(filter(None, chat.system)))
