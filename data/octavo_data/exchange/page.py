"""Chats as one HTML page that needs nothing else: no scripts, no fetches, every text escaped."""

import html
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from octavo_data.exchange.entries import ChatEntry, TurnEntry, path_to_tip
from octavo_data.records import TurnStatus

_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1e; --page: #fdfdfc; --quiet: #6a6a70; --you: #eef3fa; --line: #dcdcd8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e0; --page: #19191b; --quiet: #98989f; --you: #23303f; --line: #3a3a3d; }
}
body { margin: 0 auto; padding: 2rem 1rem; max-width: 46rem; font: 1rem/1.55 system-ui, sans-serif;
  color: var(--text); background: var(--page); }
article + article { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { margin: 1.5rem 0 .3rem; font-size: .85rem; color: var(--quiet); overflow-wrap: anywhere; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.you { padding: .6rem .9rem; border-radius: .6rem; background: var(--you); }
.about { font-size: .85rem; color: var(--quiet); overflow-wrap: anywhere; }
"""
# No byte of these is HTML: C0 and DEL as their pictures, C1 as unknown; a bare CR would be read as a line feed.
_CONTROLS: dict[int, int | str] = {code: 0x2400 + code for code in range(32) if code not in (9, 10, 13)}
_CONTROLS |= {127: 0x2421, 13: "&#13;", **dict.fromkeys(range(128, 160), 0xFFFD)}


def to_html(chats: Iterable[ChatEntry]) -> Iterator[str]:
    """One page with one article a chat, each from the root to the tip."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>Chats</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    yield from map(_article, chats)
    yield "</body>\n</html>\n"


def escaped(text: str) -> str:
    """The text as HTML shows it, in an element or an attribute."""
    return html.escape(text).translate(_CONTROLS)


def _article(chat: ChatEntry) -> str:
    created = datetime.fromtimestamp(chat.created_at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = f"{chat.model}, {created}, {chat.id}"
    parts = [f'<h1 class="text">{escaped(chat.title)}</h1>', f'<p class="about">{escaped(about)}</p>']
    if chat.system:
        parts += _message("System", "system", chat.system)
    for turn in path_to_tip(chat):
        parts += [*_message("You", "you", turn.prompt), *_message(turn.model, "reply", turn.reply), *_remark(turn)]
    return "\n".join(["<article>", *parts, "</article>\n"])


def _message(who: str, kind: str, text: str) -> list[str]:
    return [f"<h2>{escaped(who)}</h2>", f'<div class="text {kind}">{escaped(text)}</div>']


def _remark(turn: TurnEntry) -> list[str]:
    if turn.status is TurnStatus.DONE:
        return []
    text = f"{turn.status.value}{': ' + turn.error if turn.error else ''}"
    return [f'<p class="about text">({escaped(text)})</p>']
