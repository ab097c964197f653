"""Prints a stored chat as Markdown."""

import sys
from collections.abc import Sequence

from octavo.cli.output import local_time, plain
from octavo_data import Chat, Turn, TurnStatus


def print_chat(chat: Chat, turns: Sequence[Turn]) -> None:
    """The head, the system prompt and the turns, on stdout."""
    parts = [f"# {chat.title}", f"{chat.model}, {local_time(chat.created_at)}, {chat.id}"]
    if chat.system:
        parts += ["## System", chat.system]
    for turn in turns:
        parts += ["## You", turn.prompt, f"## {turn.model}", turn.reply, _remark(turn)]
    text = "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"
    sys.stdout.write(plain(text) if sys.stdout.isatty() else text)


def _remark(turn: Turn) -> str:
    if turn.status is TurnStatus.DONE:
        return ""
    return f"*({turn.status}{': ' + turn.error if turn.error else ''})*"
