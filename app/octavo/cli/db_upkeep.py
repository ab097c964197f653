"""What the commands of `octavo db` do."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click

from octavo.cli.opened import opened_store
from octavo.cli.output import plain, print_json
from octavo.errors import OctavoError
from octavo.paths import Paths
from octavo_data import Store
from octavo_data.copying import copy_file
from octavo_data.upkeep import check, count, vacuum


@contextmanager
def _existing_store() -> Iterator[Store]:
    """The store, if there is one: a copy of nothing would be taken for one of the chats. OctavoError, StoreError."""
    if not (file := Paths.from_env().store_file).exists():
        raise OctavoError(f"{file} is not there", "Nothing was asked yet, or OCTAVO_HOME should name another folder.")
    with opened_store() as store:
        yield store


def back_up(file: Path | None) -> Path:
    """Copy the store to `file`, or beside it, and return where it is. Raises StoreError."""
    with _existing_store() as store:
        now = datetime.now().astimezone().strftime("%Y-%m-%d-%H%M%S")
        target = file.absolute() if file else store.path.with_name(f"{store.path.stem}-{now}{store.path.suffix}")
        copy_file(store.path, target)
    return target


def print_check(*, is_json: bool) -> int:
    """Say what is wrong with the store on stdout, and return the exit code. Raises StoreError."""
    with _existing_store() as store:
        problems = check(store)
        num_chats, num_turns = count(store)
    if is_json:
        print_json({"path": str(store.path), "chats": num_chats, "turns": num_turns, "problems": problems})
    for problem in problems if not is_json else ():
        click.echo(f"{plain(problem.what)}. {problem.remedy}")
    if not problems and not is_json:
        click.echo(f"{store.path}: all in order (chats: {num_chats:,}, turns: {num_turns:,}).")
    return 1 if problems else 0


def print_vacuum(*, is_json: bool) -> None:
    """Make the file small and print its size before and after. Raises StoreError."""
    with _existing_store() as store:
        before, after = vacuum(store)
    if is_json:
        print_json({"path": str(store.path), "bytes_before": before, "bytes_after": after})
    else:
        click.echo(f"{store.path}: {before:,} bytes before, {after:,} after.")
