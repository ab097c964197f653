"""What keeps the file in order: a check of everything that should hold, and making it small again."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from octavo_data.connection import naming_errors, open_file
from octavo_data.encoding import ID_BYTES
from octavo_data.errors import StoreError, StoreReadError, StoreWriteError
from octavo_data.store import Store

NUM_NAMED = 3

_PUT_BACK = (
    "Stop octavo (octavo engine stop) and put a backup in its place; octavo.db.bak-* and octavo db backup are some."
)
_SEND = "Nothing that octavo does leads to this; export the chat, and report it as a bug of ours."

_LAWS = {
    "a turn whose depth is not one more than its parent's": """
        SELECT turns.id FROM turns LEFT JOIN turns AS parent ON parent.id = turns.parent_id
        WHERE turns.depth <> coalesce(parent.depth, 0) + 1""",
    "a turn that keeps more token ids than its parent has": f"""
        SELECT turns.id FROM turns JOIN turns AS parent ON parent.id = turns.parent_id WHERE turns.kept_tokens >
        parent.kept_tokens + (length(parent.prompt_ids) + length(parent.reply_ids)) / {ID_BYTES}""",
    "a turn that no search can find, since it has no number": "SELECT id FROM turns WHERE number IS NULL",
    "a chat with turns and no tip": """
        SELECT id FROM chats WHERE tip_id IS NULL AND EXISTS (SELECT 1 FROM turns WHERE chat_id = chats.id)""",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be, and what to do."""

    what: str
    remedy: str


def check(store: Store) -> list[Problem]:
    """Everything that is wrong with the file: its pages, its references, its index for search, and our own laws.

    Of a file that a newer version made only pages and references are checked. Raises StoreError when it is too damaged
    to be asked.
    """
    with naming_errors(store.path, "read", StoreReadError), store.reading() as conn:
        problems = [*_pages(conn), *_references(conn)]
        if not problems and not store.is_read_only:
            problems += _laws(conn)
    return problems if problems or store.is_read_only else list(_index(store))


def count(store: Store) -> tuple[int, int]:
    """How many chats and turns there are, those in the trash too. Raises StoreReadError."""
    with store.reading() as conn:
        chats, turns = conn.execute("SELECT (SELECT count(*) FROM chats), (SELECT count(*) FROM turns)").fetchone()
    return int(chats), int(turns)


def vacuum(store: Store) -> tuple[int, int]:
    """Build the index for search anew and give unused space back; bytes of the file before and after.

    Takes as much free space as the file has, for a while. Raises StoreWriteError.
    """
    before = _flushed_bytes(store)
    with store.writing() as conn:
        conn.execute("INSERT INTO search (search) VALUES ('rebuild')")
    with naming_errors(store.path, "vacuum", StoreWriteError), closing(open_file(store.path)) as conn:
        conn.execute("VACUUM")
    return before, _flushed_bytes(store)


def _flushed_bytes(store: Store) -> int:
    """The size of the file with all in it that is in the log beside it, if nobody reads that just now."""
    with naming_errors(store.path, "write to", StoreWriteError), closing(open_file(store.path)) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store.path.stat().st_size


def _pages(conn: sqlite3.Connection) -> Iterator[Problem]:
    for (text,) in conn.execute(f"PRAGMA integrity_check({NUM_NAMED})"):
        if text != "ok":
            yield Problem(f"the file is damaged: {text}", _PUT_BACK)


def _references(conn: sqlite3.Connection) -> Iterator[Problem]:
    found: dict[tuple[str, str], int] = {}
    for table, _, target, _ in conn.execute("PRAGMA foreign_key_check"):
        found[table, target] = found.get((table, target), 0) + 1
    for (table, target), number in found.items():
        rows = "1 row" if number == 1 else f"{number:,} rows"
        verb = "names" if number == 1 else "name"
        yield Problem(f"{rows} of {table} {verb} a row of {target} that is not there", _PUT_BACK)


def _laws(conn: sqlite3.Connection) -> Iterator[Problem]:
    for what, sql in _LAWS.items():
        if ids := [row[0] for row in conn.execute(f"{sql} LIMIT {NUM_NAMED}")]:
            yield Problem(f"{what}: {', '.join(ids)}", _SEND)


def _index(store: Store) -> Iterator[Problem]:
    try:
        with store.writing() as conn:
            conn.execute("INSERT INTO search (search, rank) VALUES ('integrity-check', 1)")
    except StoreError as error:
        if isinstance(error.__cause__, sqlite3.DatabaseError) and "CORRUPT" in error.__cause__.sqlite_errorname:
            yield Problem("the index for search does not say what the turns say", "Build it anew: octavo db vacuum.")
        else:
            raise
