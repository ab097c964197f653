"""`octavo chats`: list, search, show, export and import what is stored."""

from pathlib import Path

import click

from octavo.cli import shelves

_json = click.option("--json", "is_json", is_flag=True, help="As JSON.")


@click.group(invoke_without_command=True)
@_json
@click.pass_context
def command(ctx: click.Context, is_json: bool) -> None:
    """List the stored chats: pinned ones first, then the most recent."""
    if ctx.invoked_subcommand is None:
        from octavo.cli.chat_lists import print_chats

        print_chats(is_json=is_json)


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Only so many.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only those with this tag; may be given again.")
@click.option("--archived", "shelf", flag_value="archived", help="Those in the archive.")
@click.option("--trash", "shelf", flag_value="trash", help="Those in the trash.")
@click.option("--all", "shelf", flag_value="all", help="Those in the archive, too.")
@_json
def list_command(limit: int | None, tags: tuple[str, ...], shelf: str | None, is_json: bool) -> None:
    """List the stored chats: pinned ones first, then the most recent."""
    from octavo.cli.chat_lists import print_chats

    print_chats(limit, shelf or "open", tags, is_json=is_json)


@command.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@_json
def search(words: tuple[str, ...], limit: int, is_json: bool) -> None:
    """Find the turns that have all WORDS, the newest first; the last word may be the beginning of one.

    Signs in a word with letters count as spaces do (c++, a->b); without letters they are found as they stand.
    """
    from octavo.cli.chat_lists import print_hits

    print_hits(" ".join(words), limit, is_json=is_json)


@command.command()
@click.argument("chat_id", metavar="ID")
@_json
def show(chat_id: str, is_json: bool) -> None:
    """Show one chat with its turns; the beginning of its id is enough."""
    from octavo.cli.opened import opened_store
    from octavo.cli.output import print_json
    from octavo.cli.transcript import print_chat

    with opened_store() as store:
        chat = store.chat(chat_id)
        turns = store.turns(chat.id)
    if is_json:
        print_json({"chat": chat, "turns": turns})
    else:
        print_chat(chat, turns)


@command.command("export")
@click.argument("chat_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every chat that is not in the trash.")
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
    from octavo.cli.opened import opened_store

    with opened_store() as store:
        export_chats(store, chat_ids, file_format, file)


@command.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-m", "--model", metavar="NAME", help="What chats of other programs go on with.")
def import_command(files: tuple[Path, ...], model: str | None) -> int:
    """Import Octavo's JSON, OpenAI JSONL, ChatGPT's export (JSON or zip), or llm's logs.db."""
    from octavo.cli.exchange import going_on_with, import_chats
    from octavo.cli.opened import opened_store

    model = going_on_with(model)
    with opened_store() as store:
        return import_chats(store, files, model)


@command.command()
def path() -> None:
    """Print the path of the file that holds the chats."""
    from octavo.paths import Paths

    click.echo(Paths.from_env().store_file)


for _command in shelves.COMMANDS:
    command.add_command(_command)
