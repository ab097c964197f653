"""Brings a file to our schema: each migration that it lacks, in one transaction with its record."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from octavo_data.connection import immediate
from octavo_data.copying import copy_file
from octavo_data.encoding import now_ms
from octavo_data.migrations import APPLICATION_ID, CHANGES_DATA, MIGRATIONS, Migration

NUM_KEPT_BACKUPS = 3


def applied(conn: sqlite3.Connection) -> set[str]:
    """Names of the migrations that the file has had; none for an empty file."""
    if not conn.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'").fetchone():
        return set()
    return {name for (name,) in conn.execute("SELECT name FROM migrations")}


def unknown(conn: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> set[str]:
    """Names of the migrations that a newer version has applied to the file."""
    return applied(conn) - {migration.__name__ for migration in migrations}


def is_foreign(conn: sqlite3.Connection) -> bool:
    """Whether the database belongs to another program: it has tables, and not our mark."""
    if not conn.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        return False
    # Asked after the tables: they come in one commit with the mark, perhaps this moment, from another process.
    (mark,) = conn.execute("PRAGMA application_id").fetchone()
    return int(mark) != APPLICATION_ID


def migrate(conn: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Run what the file lacks, in order; an up-to-date file is only read. A copy is made before its rows are changed.

    sqlite-utils is imported when there is something to run: with numpy it takes 0.2 s of a reader's first paint.
    Raises StoreWriteError when the copy cannot be made; the file is then as it was.
    """
    if any(migration.__name__ not in applied(conn) for migration in migrations):
        for migration in migrations:
            _apply(conn, path, migration)


def backups(path: Path) -> list[Path]:
    """The copies that were made of the file before migrations, the oldest schema first."""
    return sorted(path.parent.glob(f"{path.name}.bak-[0-9][0-9][0-9]"))


def _apply(conn: sqlite3.Connection, path: Path, migration: Migration) -> None:
    from sqlite_utils import Database

    with immediate(conn):
        before = applied(conn)
        if migration.__name__ in before:  # asked inside the lock: another process may have been first
            return
        if before and migration.__name__ in CHANGES_DATA and conn.execute("SELECT 1 FROM chats LIMIT 1").fetchone():
            _back_up(path, len(before))
        conn.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL)")
        migration(Database(conn, execute_plugins=False))
        conn.execute("INSERT INTO migrations (name, applied_at) VALUES (?, ?)", (migration.__name__, now_ms()))


def _back_up(path: Path, num_applied: int) -> None:
    """Copy the file as it is for all others: what our transaction has not committed yet is not in it."""
    copy_file(path, path.with_name(f"{path.name}.bak-{num_applied:03}"), replace=True)
    for old in backups(path)[:-NUM_KEPT_BACKUPS]:
        old.unlink(missing_ok=True)
