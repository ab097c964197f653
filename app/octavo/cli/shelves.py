"""The commands of `octavo chats` that change where a chat is kept: names, tags, pins, the archive, the trash, forks."""

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from octavo_data import Chat, Store

_id = click.argument("chat_id", metavar="ID")


@click.command()
@_id
@click.argument("title", nargs=-1, required=True)
def rename(chat_id: str, title: tuple[str, ...]) -> None:
    """Give a chat another title."""
    if not (text := " ".join(" ".join(title).split())):
        raise click.UsageError("TITLE: there is nothing in it.")
    with _opened() as store:
        store.rename_chat(store.chat(chat_id).id, text)


@click.command(context_settings={"ignore_unknown_options": True})
@_id
@click.argument("tags", metavar="+TAG|-TAG...", nargs=-1, type=click.UNPROCESSED)
def tag(chat_id: str, tags: tuple[str, ...]) -> None:
    """Give a chat tags (+work, or just work) and take them (-work); prints those that it has then."""
    from octavo_data.shelves import set_tags

    with _opened() as store:
        chat = store.chat(chat_id)
        removed = [text[1:] for text in tags if text.startswith("-")]
        set_tags(
            store, chat.id, add=[text.removeprefix("+") for text in tags if not text.startswith("-")], remove=removed
        )
        click.echo(" ".join(store.chat(chat.id).tags))


@click.command()
@_id
def pin(chat_id: str) -> None:
    """Keep a chat at the head of the list."""
    _pin(chat_id, True)


@click.command()
@_id
def unpin(chat_id: str) -> None:
    """Let a pinned chat go down the list as others do."""
    _pin(chat_id, False)


@click.command()
@_id
def archive(chat_id: str) -> None:
    """Take a chat out of the list; search finds it, and a new question in it brings it back."""
    _archive(chat_id, True)


@click.command()
@_id
def unarchive(chat_id: str) -> None:
    """Put an archived chat into the list again."""
    _archive(chat_id, False)


@click.command()
@click.argument("chat_ids", metavar="ID...", nargs=-1, required=True)
def rm(chat_ids: tuple[str, ...]) -> None:
    """Move chats to the trash, where they stay until it is emptied."""
    from octavo_data import shelves

    with _opened() as store:
        for chat in [store.chat(chat_id) for chat_id in chat_ids]:
            shelves.trash(store, chat.id)
            _say(f"{_named(chat)} is in the trash. Undo: octavo chats restore {chat.id}")


@click.command()
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
def trash(is_json: bool) -> None:
    """List what is in the trash, the last thrown away first."""
    from octavo.cli.chat_lists import print_chats

    print_chats(shelf="trash", is_json=is_json)


@click.command()
@click.argument("chat_ids", metavar="ID...", nargs=-1, required=True)
def restore(chat_ids: tuple[str, ...]) -> None:
    """Take chats out of the trash, to where they were."""
    from octavo_data import shelves

    with _opened() as store:
        for chat in [store.chat(chat_id) for chat_id in chat_ids]:
            shelves.restore(store, chat.id)
            _say(f"{_named(chat)} is back." if chat.trashed_at else f"{_named(chat)} was not in the trash.")


@click.command("empty-trash")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
def empty_trash(is_sure: bool) -> None:
    """Delete for good what is in the trash, and the KV blocks of all chats on disk."""
    from octavo.cli.engine_disk import clear
    from octavo_data import Shelf, shelves

    with _opened() as store:
        number = len(store.chats(shelf=Shelf.TRASH))
        if not number:
            _say("The trash is empty.")
            return
        if not (is_sure or _is_confirmed(f"Delete {_chats(number)} for good?")):
            _say("Nothing was deleted.")
            return
        deleted = shelves.empty_trash(store)
        clear(store)  # KV blocks hold what was said too, and nothing tells whose they are
        left = f"; {_chats(number - deleted)} left, since a reply still runs there" if deleted < number else ""
        _say(f"{_chats(deleted)} deleted{left}.")


@click.command()
@_id
@click.option("--turn", "number", type=click.IntRange(min=0), metavar="N", help="Behind turn N; by default the last.")
def fork(chat_id: str, number: int | None) -> None:
    """Begin a second chat that shares the turns of this one; prints its id."""
    from octavo_data import shelves

    with _opened() as store:
        chat = store.chat(chat_id)
        turns = store.turns(chat.id)
        if number is not None and number > len(turns):
            raise click.UsageError(f"--turn: the chat has {len(turns)} turns, not {number}.")
        path = turns if number is None else turns[:number]
        click.echo(shelves.fork(store, chat.id, path[-1].id if path else None))


COMMANDS = (rename, tag, pin, unpin, archive, unarchive, rm, trash, restore, empty_trash, fork)


def _opened() -> "AbstractContextManager[Store]":
    from octavo.cli.opened import opened_store

    return opened_store()


def _pin(chat_id: str, is_pinned: bool) -> None:
    from octavo_data import shelves

    with _opened() as store:
        shelves.pin(store, store.chat(chat_id).id, is_pinned)


def _archive(chat_id: str, is_archived: bool) -> None:
    from octavo_data import shelves

    with _opened() as store:
        shelves.archive(store, store.chat(chat_id).id, is_archived)


def _is_confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("There is nobody to ask here; say --yes.")
    return click.confirm(question, err=True)


def _named(chat: "Chat") -> str:
    from octavo.cli.output import plain

    return f'"{plain(" ".join(chat.title.split()))}"'


def _chats(number: int) -> str:
    return f"{number:,} chat{'' if number == 1 else 's'}"


def _say(text: str) -> None:
    click.echo(text, err=True)
