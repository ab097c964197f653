"""A consistent copy of the file while others write to it, with SQLite's own backup."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from octavo_data.connection import naming_errors
from octavo_data.errors import StoreWriteError


def copy_file(path: Path, target: Path, *, replace: bool = False) -> None:
    """Write all that is committed to `target`, one file of mode 0600, whole or not at all; StoreWriteError.

    One that is there already is kept, and an error, unless `replace` is set.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not replace:
            raise StoreWriteError(f"{target} exists already", "Choose another name, or move it away.")
        draft.touch(mode=0o600)
        _copy(path, draft)
        draft.replace(target)
    except OSError as error:
        remedy = "Choose a folder that you may write to."
        raise StoreWriteError(f"cannot write {target}: {error.strerror}", remedy) from error
    finally:
        with suppress(OSError):  # replaced, or never made
            draft.unlink()


def _copy(path: Path, draft: Path) -> None:
    verb = f"copy to {draft.parent}"
    with (
        naming_errors(path, verb, StoreWriteError),
        closing(sqlite3.connect(path)) as source,
        closing(sqlite3.connect(draft)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # without -wal beside it, the file is all there is
