"""The schema as an append-only list of steps; each runs once per file, in one transaction with its record."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from octavo_data.connection import immediate
from octavo_data.encoding import now_ms

if TYPE_CHECKING:
    from sqlite_utils import Database

Migration = Callable[["Database"], None]

APPLICATION_ID = 0x4F435456  # "OCTV" in the header of the file: this database is ours


def m001_chats_and_turns(db: "Database") -> None:
    """Chats, and turns as a tree: a chat points at the tip of its path, a turn at its parent."""
    db.execute(_CHATS)
    db.execute(_TURNS)
    db.execute("CREATE INDEX chats_by_activity ON chats(updated_at DESC, id DESC)")
    db.execute("CREATE INDEX running_turns ON turns(host) WHERE status = 'running'")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


MIGRATIONS: tuple[Migration, ...] = (m001_chats_and_turns,)
"""Only ever append: a file in the world has run a prefix of this list."""


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


def migrate(conn: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Run what the file lacks, in order; an up-to-date file is only read.

    sqlite-utils is imported when there is something to run: with numpy it takes 0.2 s of a reader's first paint.
    """
    if any(migration.__name__ not in applied(conn) for migration in migrations):
        for migration in migrations:
            _apply(conn, migration)


def _apply(conn: sqlite3.Connection, migration: Migration) -> None:
    from sqlite_utils import Database

    with immediate(conn):
        if migration.__name__ in applied(conn):  # asked inside the lock: another process may have been first
            return
        conn.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL)")
        migration(Database(conn, execute_plugins=False))
        conn.execute("INSERT INTO migrations (name, applied_at) VALUES (?, ?)", (migration.__name__, now_ms()))


_CHATS = """
CREATE TABLE chats (
    id TEXT PRIMARY KEY NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    system TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL CHECK (updated_at >= created_at),
    tip_id TEXT REFERENCES turns(id) DEFERRABLE INITIALLY DEFERRED
)
"""
# depth: how many turns from the root to here, so that a list of chats counts turns without walking each path.
_TURNS = """
CREATE TABLE turns (
    id TEXT PRIMARY KEY NOT NULL,
    chat_id TEXT NOT NULL REFERENCES chats(id),
    parent_id TEXT REFERENCES turns(id) CHECK (parent_id <> id),
    depth INTEGER NOT NULL CHECK (depth >= 1),
    prompt TEXT NOT NULL,
    reply TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done', 'stopped', 'interrupted', 'failed')),
    stop_reason TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    host TEXT NOT NULL,
    kept_tokens INTEGER NOT NULL CHECK (kept_tokens >= 0),
    prompt_ids BLOB NOT NULL CHECK (length(prompt_ids) % 4 = 0),
    reply_ids BLOB NOT NULL DEFAULT x'' CHECK (length(reply_ids) % 4 = 0),
    prompt_tokens INTEGER NOT NULL DEFAULT 0 CHECK (prompt_tokens >= 0),
    cached_tokens INTEGER NOT NULL DEFAULT 0 CHECK (cached_tokens >= 0),
    computed_tokens INTEGER NOT NULL DEFAULT 0 CHECK (computed_tokens >= 0),
    completion_tokens INTEGER NOT NULL DEFAULT 0 CHECK (completion_tokens >= 0),
    queue_ms REAL NOT NULL DEFAULT 0 CHECK (queue_ms >= 0),
    first_token_ms REAL NOT NULL DEFAULT 0 CHECK (first_token_ms >= 0),
    total_ms REAL NOT NULL DEFAULT 0 CHECK (total_ms >= 0),
    tokens_per_s REAL NOT NULL DEFAULT 0 CHECK (tokens_per_s >= 0),
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    CHECK ((status = 'running') = (ended_at IS NULL)),
    CHECK ((parent_id IS NULL) = (depth = 1)),
    CHECK (parent_id IS NOT NULL OR kept_tokens = 0)
)
"""
