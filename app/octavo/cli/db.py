"""`octavo db`: the file that holds the chats: where it is, copies of it, whether it is in order, its size."""

from pathlib import Path

import click

_json = click.option("--json", "is_json", is_flag=True, help="As JSON.")


@click.group()
def command() -> None:
    """Look after the file that holds the chats."""


@command.command()
def path() -> None:
    """Print its path; it need not exist."""
    from octavo.paths import Paths

    click.echo(Paths.from_env().store_file)


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
def backup(file: Path | None) -> None:
    """Copy it, whole, while others write to it; FILE is by default one beside it with the time in its name."""
    from octavo.cli.db_upkeep import back_up

    click.echo(back_up(file))


@command.command()
@_json
def check(is_json: bool) -> int:
    """Look whether all is in order; exit code 1 and what to do when something is not."""
    from octavo.cli.db_upkeep import print_check

    return print_check(is_json=is_json)


@command.command()
@_json
def vacuum(is_json: bool) -> None:
    """Build the index for search anew, and give unused space back."""
    from octavo.cli.db_upkeep import print_vacuum

    print_vacuum(is_json=is_json)
