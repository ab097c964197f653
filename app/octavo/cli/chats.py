"""`octavo chats`: list, show, export and import what is stored."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo_data import Store


@click.group(invoke_without_command=True)
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
@click.pass_context
def command(ctx: click.Context, is_json: bool) -> None:
    """List the stored chats, the most recent first."""
    if ctx.invoked_subcommand is None:
        _list(limit=None, is_json=is_json)


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Only so many.")
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
def list_command(limit: int | None, is_json: bool) -> None:
    """List the stored chats, the most recent first."""
    _list(limit=limit, is_json=is_json)


@command.command()
@click.argument("chat_id", metavar="ID")
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
def show(chat_id: str, is_json: bool) -> None:
    """Show one chat with its turns; the beginning of its id is enough."""
    from octavo.cli.output import print_json
    from octavo.cli.transcript import print_chat

    with _opened_store() as store:
        chat = store.chat(chat_id)
        turns = store.turns(chat.id)
    if is_json:
        print_json({"chat": chat, "turns": turns})
    else:
        print_chat(chat, turns)


@command.command("export")
@click.argument("chat_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every chat.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["md", "json", "jsonl", "html"]),
    help="By default that of FILE, or md.",
)
@click.option("-o", "--output", "file", metavar="FILE", type=click.Path(path_type=Path), help="Instead of stdout.")
def export_command(chat_ids: tuple[str, ...], is_all: bool, file_format: str | None, file: Path | None) -> None:
    """Export chats as Markdown, JSON (nothing lost), JSONL of messages, or HTML."""
    if is_all == bool(chat_ids):
        raise click.UsageError("Say which chats: ids (octavo chats lists them), or --all.")
    from octavo.cli.exchange import export_chats

    with _opened_store() as store:
        export_chats(store, chat_ids, file_format, file)


@command.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-m", "--model", metavar="NAME", help="What chats of other programs go on with.")
def import_command(files: tuple[Path, ...], model: str | None) -> int:
    """Import Octavo's JSON, OpenAI JSONL, ChatGPT's export (JSON or zip), or llm's logs.db."""
    from octavo.cli.exchange import going_on_with, import_chats

    model = going_on_with(model)
    with _opened_store() as store:
        return import_chats(store, files, model)


@command.command()
def path() -> None:
    """Print the path of the file that holds the chats."""
    from octavo.paths import Paths

    click.echo(Paths.from_env().store_file)


def _list(limit: int | None, is_json: bool) -> None:
    from octavo.cli.output import local_time, print_json, print_rows

    with _opened_store() as store:
        chats = store.chats(limit)
    if is_json:
        print_json(chats)
    elif chats:
        print_rows([(chat.id, local_time(chat.updated_at), _turns(chat.num_turns), chat.title) for chat in chats])
    else:
        click.echo('No chats yet. Begin one with octavo "your question".', err=True)


@contextlib.contextmanager
def _opened_store() -> "Iterator[Store]":
    """The store, in which no turn is said to run whose host has died; what a person should know of it on stderr."""
    from octavo.host_lock import reap
    from octavo.paths import Paths
    from octavo_data import Store, StoreWriteError

    paths = Paths.from_env()
    with Store(paths.store_file) as store:
        if store.notice:
            click.echo(f"octavo: {store.notice}", err=True)
        with contextlib.suppress(StoreWriteError):  # for reading it is good enough
            reap(store, paths)
        yield store


def _turns(num_turns: int) -> str:
    return f"{num_turns} turn{'' if num_turns == 1 else 's'}"
