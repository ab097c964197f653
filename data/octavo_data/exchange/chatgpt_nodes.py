"""One node of ChatGPT's export: which text it adds to a chat, or why it adds none."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from octavo_data.exchange.errors import BadContentError

_REASONING = ("thoughts", "reasoning_recap")
_WORDS = {"dict": "an object", "list": "a list", "str": "a text"}
_CONTEXT = ("user_editable_context", "model_editable_context")


@dataclass(frozen=True, slots=True)
class Said:
    """What a node adds: the words of one side."""

    role: Literal["user", "assistant"]
    text: str
    time: object


def said_by(node: dict[str, Any], place: str, skipped: Counter[str]) -> Said | None:
    """What the node says; None for one that says nothing, which is counted unless it is the bare root of a tree.

    Raises BadContentError with the pointer of what cannot be read.
    """
    message = node.get("message")
    if message is None:
        return None
    place = f"{place}/message"
    role = _field(_field(message, "author", dict, place), "role", str, f"{place}/author")
    content = _field(message, "content", dict, place)
    reason = _reason(message, role, content)
    if reason:
        skipped[reason] += 1
        return None
    text = _text(content, f"{place}/content", skipped)
    if not text.strip():
        skipped["empty node"] += 1
        return None
    return Said("user" if role == "user" else "assistant", text, message.get("create_time"))


def _reason(message: dict[str, Any], role: str, content: dict[str, Any]) -> str:
    """Why the message is not part of what the two said to each other, or nothing."""
    kind, metadata = content.get("content_type"), message.get("metadata")
    if role == "tool" or (role == "assistant" and message.get("recipient") not in (None, "all")):
        return "tool message"
    if role not in ("user", "assistant"):
        return "system message"
    if kind in _CONTEXT:
        return "custom instruction"
    if kind in _REASONING:
        return "reasoning message"
    if isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation"):
        return "hidden message"
    return ""


def _text(content: dict[str, Any], place: str, skipped: Counter[str]) -> str:
    if "parts" not in content:
        text = content.get("text")
        return text if isinstance(text, str) else ""
    parts = _field(content, "parts", list, place)
    texts = [_part(part, f"{place}/parts/{index}", skipped) for index, part in enumerate(parts)]
    return "\n".join(text for text in texts if text)


def _part(part: Any, place: str, skipped: Counter[str]) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise BadContentError(place, "neither text nor an object")
    if isinstance(part.get("text"), str):  # what was said aloud
        return str(part["text"])
    is_image = "image" in str(part.get("content_type"))
    skipped["image" if is_image else "other attachment"] += 1
    return ""


def _field(value: Any, name: str, kind: type, place: str) -> Any:
    """The value of a key that has to be there."""
    if not isinstance(value, dict):
        raise BadContentError(place, "not an object")
    found = value.get(name)
    if not isinstance(found, kind):
        raise BadContentError(f"{place}/{name}", f"not {_WORDS[kind.__name__]}" if name in value else "missing")
    return found
