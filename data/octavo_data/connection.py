"""One connection to the file: private, with our settings, written in whole transactions, its errors named."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from octavo_data.errors import StoreError, StoreOpenError

BUSY_TIMEOUT_S = 5.0
CACHE_KIB = 16 * 1024  # a list of 2,000 chats reads 8 MB of pages, and SQLite's default keeps 2

_REMEDIES = {
    "SQLITE_FULL": "Free some disk space.",
    "SQLITE_READONLY": "Make the file and its folder writable.",
    "SQLITE_PERM": "Make the file and its folder readable and writable.",
    "SQLITE_CANTOPEN": "Check that the folder exists and that you may read and write in it.",
    "SQLITE_BUSY": "Another program holds the file; close it or try again.",
    "SQLITE_CORRUPT": "The file is damaged; move it away, or put a backup in its place.",
    "SQLITE_NOTADB": "Move the file away, or set OCTAVO_HOME to another folder.",
    "SQLITE_IOERR": "Check the disk and its free space.",
    "SQLITE_ERROR": "The file may be from another version; update octavo.",
}


def open_file(path: Path) -> sqlite3.Connection:
    """A connection to the file, which is made 0600 in a folder of 0700 where they are missing; StoreOpenError."""
    try:
        _create(path)
    except OSError as error:
        remedy = "Check the folder's permissions, or set OCTAVO_HOME to another folder."
        raise StoreOpenError(f"cannot open {path}: {error.strerror}", remedy) from error
    with naming_errors(path, "open", StoreOpenError):
        return _connect(path)


def close_to_others(path: Path) -> None:
    """Take the rights of group and others from a file of ours; its companions (-wal, -shm) get the same mode."""
    mode = path.stat().st_mode
    if mode & 0o077:
        with suppress(PermissionError):  # another owner's file
            path.chmod(mode & 0o700)


def enable_wal(conn: sqlite3.Connection) -> None:
    """Switch a new file to WAL; the busy timeout does not cover the switch, so wait here for another process's."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while conn.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            conn.execute("PRAGMA journal_mode = WAL")
            return  # where the file system knows no WAL the old mode stays, which is slower and still right
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def immediate(conn: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: the lock is taken at the start, an exception takes everything back."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:  # a full disk may have rolled it back already
            conn.execute("ROLLBACK")
        raise


@contextmanager
def naming_errors(path: Path, verb: str, kind: type[StoreError]) -> Iterator[None]:
    """Failures of SQLite become `kind`, with path, reason and remedy; misuse by our own code stays as it is."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
        raise
    except sqlite3.Error as error:
        raise kind(f"cannot {verb} {path}: {error}", _remedy(error)) from error


def _remedy(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")  # SQLITE_IOERR_WRITE and the like begin with the name of their kind
    return next((text for kind, text in _REMEDIES.items() if name.startswith(kind)), "Try again.")


def _create(path: Path) -> None:
    for folder in reversed(path.parents):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        with suppress(FileExistsError):  # another process was first
            path.touch(mode=0o600, exist_ok=False)
    # Never open an existing file by hand: closing it drops the locks that other connections of this process hold.


def _connect(path: Path) -> sqlite3.Connection:
    # isolation_level: transactions are ours, not the driver's
    conn = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        conn.execute("PRAGMA synchronous = NORMAL")
        conn.execute("PRAGMA foreign_keys = ON")
        conn.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except BaseException:
        conn.close()
        raise
    return conn
