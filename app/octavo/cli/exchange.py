"""`octavo chats export` and `octavo chats import`: chats to files and stdout, and back."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from octavo.cli.output import plain
from octavo.cli.setup import load, with_model
from octavo.errors import OctavoError
from octavo_data import Shelf, Store, StoreError
from octavo_data.exchange.entries import ChatEntry, path_to_tip
from octavo_data.exchange.exporting import EXPORTERS, num_left_out
from octavo_data.exchange.foreign import Taken
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.trees import Added, add_chats, read_chats

STREAM = Path("-")  # stdin or stdout, as everywhere


def export_chats(store: Store, chat_ids: Sequence[str], file_format: str | None, file: Path | None) -> None:
    """Write the chats (all without ids) to the file or to stdout. Raises StoreError, OctavoError."""
    if file == STREAM:
        file = None
    kind = file_format or (file.suffix.removeprefix(".") if file else "")
    exporter = EXPORTERS.get(kind, EXPORTERS["md"])
    left_out: list[int] = []
    with contextlib.closing(read_chats(store, _chosen(store, chat_ids))) as entries:  # also when nobody reads on
        pieces = exporter(_counting(entries, left_out))
        if file:
            _write_file(file, pieces)
        else:
            _write_stdout(pieces)
    if sum(left_out) and exporter is not EXPORTERS["json"]:
        click.echo(
            f"octavo: {_num(sum(left_out), 'turn')} on other branches left out; --format json has all.", err=True
        )


def going_on_with(model: str | None) -> str:
    """The model that the chats of other programs go on with: this one, else that of the settings."""
    settings, _ = load()
    return with_model(settings, model).model


def import_chats(store: Store, files: Sequence[Path], model: str) -> int:
    """Import each file by itself, tell on stderr what became of it, and return the exit code: 1 if any gave nothing."""
    return max([_import(store, file, model) for file in files])


def _import(store: Store, file: Path, model: str) -> int:
    try:
        taken = read_file(Path("/dev/stdin") if file == STREAM else file, model)
        added = add_chats(store, taken.chats)
    except StoreError as error:
        click.echo(f"octavo: {' '.join(plain(str(error)).split())}", err=True)
        return 1
    click.echo(plain(f"{file}: {_summary(taken, added)}"), err=True)
    return 0 if taken.chats else 1


def _chosen(store: Store, chat_ids: Sequence[str]) -> list[str]:
    """All chats before the first byte is written, so that a wrong id leaves no half export."""
    chats = [store.chat(chat_id) for chat_id in chat_ids] if chat_ids else store.chats(shelf=Shelf.ALL)
    return list({chat.id: None for chat in chats})


def _counting(entries: Iterable[ChatEntry], left_out: list[int]) -> Iterator[ChatEntry]:
    for entry in entries:
        left_out.append(num_left_out(entry))
        yield entry


def _write_stdout(pieces: Iterable[str]) -> None:
    if sys.stdout.isatty():
        for piece in pieces:
            sys.stdout.write(plain(piece))
        return
    sys.stdout.flush()
    for piece in pieces:
        sys.stdout.buffer.write(piece.encode())  # UTF-8 whatever the terminal speaks


def _write_file(file: Path, pieces: Iterable[str]) -> None:
    """Whole or not at all, and readable by nobody else, as the store is; a device or a pipe takes it as it comes."""
    try:
        file = file.resolve()
        if file.exists() and not file.is_file():
            with file.open("wb") as stream:
                stream.writelines(piece.encode() for piece in pieces)
            return
        with tempfile.NamedTemporaryFile("wb", dir=file.parent, prefix=f".{file.name}.", delete=False) as draft:
            try:
                draft.writelines(piece.encode() for piece in pieces)
                draft.close()
                os.replace(draft.name, file)  # noqa: PTH105  a plain name
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise OctavoError(f"cannot write {file}: {error.strerror}", "Choose another file with -o.") from error


def _summary(taken: Taken, added: Added) -> str:
    """What was taken and what was not, and why."""
    parts = [f"{taken.kind}, {_num(added.num_chats, 'chat')} and {_num(added.num_turns, 'turn')} imported"]
    if added.num_renamed:
        parts.append(f"{_num(added.num_renamed, 'chat')} under a new id, since theirs has other content here")
    if num_branched := sum(len(chat.turns) - len(path_to_tip(chat)) for chat in taken.chats):
        parts.append(f"{_num(num_branched, 'turn')} of the file on other branches than the current one, kept")
    if taken.num_closed:
        parts.append(f"{_num(taken.num_closed, 'running turn')} taken as interrupted")
    skipped = [_num(number, name) for name, number in sorted(taken.skipped.items()) if number]
    if added.num_known:
        trashed = f" ({added.num_trashed:,} in the trash)" if added.num_trashed else ""
        skipped.insert(0, f"{_num(added.num_known, 'chat')} already here{trashed}")
    return "; ".join([*parts, f"skipped: {', '.join(skipped) or 'nothing'}"]) + "."


def _num(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
