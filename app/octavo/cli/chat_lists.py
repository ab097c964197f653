"""Prints lists of chats, and what a search found in them."""

import sys
from collections.abc import Sequence

import click

from octavo.cli.opened import opened_store
from octavo.cli.output import local_time, plain, print_json, print_rows
from octavo_data import Chat, Shelf
from octavo_data.search import Hit, search
from octavo_data.shelves import tag_of

_NONE = {
    Shelf.ARCHIVED: "The archive is empty.",
    Shelf.TRASH: "The trash is empty.",
}


def print_chats(limit: int | None = None, shelf: str = "open", tags: Sequence[str] = (), *, is_json: bool) -> None:
    """The chats on this shelf (a value of Shelf) with all these tags, on stdout. Raises StoreError."""
    which = Shelf(shelf)
    with opened_store() as store:
        chats = store.chats(limit, shelf=which, tags=[tag_of(tag) for tag in tags])
    if is_json:
        print_json(chats)
    elif chats:
        print_rows([_row(chat) for chat in chats])
    elif tags:
        click.echo("No chat here has " + " and ".join(f"the tag {plain(tag)}" for tag in tags) + ".", err=True)
    else:
        click.echo(_NONE.get(which, 'No chats yet. Begin one with octavo "your question".'), err=True)


def print_hits(words: str, limit: int, *, is_json: bool) -> None:
    """The turns that have all the words, on stdout. Raises StoreError."""
    with opened_store() as store:
        hits = search(store, words, limit)
    if is_json:
        print_json(hits)
    for hit in hits if not is_json else ():
        sys.stdout.write(plain(f"{hit.chat_id}  {local_time(hit.created_at)}  {' '.join(hit.title.split())}\n"))
        sys.stdout.write(f"    {_shown(hit)}\n")
    if not hits:
        click.echo("Nothing found.", err=True)


def _row(chat: Chat) -> tuple[str, str, str, str]:
    marks = [*(["pinned"] if chat.is_pinned else []), *(f"#{tag}" for tag in chat.tags)]
    title = f"{chat.title} [{' '.join(marks)}]" if marks else chat.title
    return (chat.id, local_time(chat.updated_at), _turns(chat.num_turns), title)


def _turns(num_turns: int) -> str:
    return f"{num_turns} turn{'' if num_turns == 1 else 's'}"


def _shown(hit: Hit) -> str:
    """The snippet on one line, in a terminal with its words in bold."""
    text, at = "", 0
    for begin, end in hit.spans:
        text += plain(hit.snippet[at:begin]) + click.style(plain(hit.snippet[begin:end]), bold=True)
        at = end
    text += plain(hit.snippet[at:])
    return " ".join((text if sys.stdout.isatty() else click.unstyle(text)).split())
