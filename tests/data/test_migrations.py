"""Laws of the schema: files of any age open, half a migration never stays, and queries use their indexes."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from octavo_data import Chat, Shelf, Store, StoreReadOnlyError, StoreWriteError, queries
from octavo_data.connection import open_file
from octavo_data.migrations import MIGRATIONS
from octavo_data.upgrading import applied, migrate

if TYPE_CHECKING:
    from sqlite_utils import Database


OURS = {migration.__name__ for migration in MIGRATIONS}


def m901_notes(db: "Database") -> None:
    db.execute("CREATE TABLE notes (id TEXT PRIMARY KEY)")


def m902_fails(db: "Database") -> None:
    db.execute("INSERT INTO notes VALUES ('half')")
    db.execute("CREATE TABLE more (id TEXT)")
    raise RuntimeError("a bug in a migration")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "octavo.db"


def test_an_empty_file_gets_every_migration_with_its_time(path: Path) -> None:
    path.touch()
    with Store(path) as store:
        assert store.notice == ""
        rows = store._conn.execute("SELECT name, applied_at FROM migrations ORDER BY rowid").fetchall()
    assert [name for name, _ in rows] == [migration.__name__ for migration in MIGRATIONS]
    assert min(applied_at for _, applied_at in rows) > 1_700_000_000_000


def test_an_up_to_date_file_is_not_written(path: Path) -> None:
    with Store(path) as store:
        store.create_chat(title="t", model="m")
    before = path.read_bytes()
    Store(path).close()
    assert path.read_bytes() == before


def test_an_older_file_gets_only_what_it_lacks_and_keeps_its_chats(path: Path) -> None:
    with Store(path) as store:
        chat = store.create_chat(title="t", model="m")
        migrate(store._conn, path, [*MIGRATIONS, m901_notes])
        assert applied(store._conn) == {*OURS, "m901_notes"}
        assert store.chats() == [chat]


def test_a_failing_migration_leaves_nothing_and_those_before_it_stay(path: Path) -> None:
    Store(path).close()
    conn = open_file(path)
    with pytest.raises(RuntimeError, match="a bug in a migration"):
        migrate(conn, path, [*MIGRATIONS, m901_notes, m902_fails])
    assert applied(conn) == {*OURS, "m901_notes"}
    assert conn.execute("SELECT * FROM notes").fetchall() == []
    assert conn.execute("SELECT * FROM sqlite_master WHERE name = 'more'").fetchall() == []
    conn.close()


@pytest.fixture
def newer(path: Path) -> tuple[Path, Chat]:
    with Store(path) as store:
        chat = store.create_chat(title="t", model="m")
        store.begin_turn(chat.id, prompt="p", host="h", kept_tokens=0, prompt_ids=[1])
        migrate(store._conn, path, [*MIGRATIONS, m901_notes])
        return path, store.chat(chat.id)


def test_a_file_of_a_newer_version_is_read_and_never_written(newer: tuple[Path, Chat]) -> None:
    path, chat = newer
    before = path.read_bytes()
    with Store(path) as store:
        assert store.is_read_only
        assert (
            store.notice
            == f"{path} was written by a newer octavo and is open for reading only. Update octavo to write."
        )
        assert store.chats() == [chat]
        assert len(store.turns(chat.id)) == 1
        assert store.running_hosts() == {"h"}
        turn_id = str(chat.tip_id)
        for write in (
            lambda: store.create_chat(title="x", model="m"),
            lambda: store.rename_chat(chat.id, "x"),
            lambda: store.begin_turn(chat.id, prompt="p", host="h", kept_tokens=0, prompt_ids=[]),
            lambda: store.flush_turn(turn_id, reply="x", reply_ids=[]),
            lambda: store.interrupt_turns("h"),
        ):
            with pytest.raises(StoreReadOnlyError, match=r"written by a newer octavo\. Update octavo"):
                write()
        with pytest.raises(sqlite3.OperationalError, match="readonly"):  # nor by a write that forgot to ask
            store._conn.execute("DELETE FROM turns")
    assert path.read_bytes() == before


def test_a_read_only_store_is_a_kind_of_write_error() -> None:
    assert issubclass(StoreReadOnlyError, StoreWriteError)


PLANS = {
    "LAST_CHAT": (),
    "CHAT_BY_ID": ("x",),
    "CHATS_BY_PREFIX": ("0", "1", 4),
    "TURN_BY_ID": ("x",),
    "PATH": ("x",),
    "TOKEN_IDS": ("x",),
    "PARENT": ("x",),
    "RUNNING_HOSTS": (),
    "INTERRUPT_TURNS": (1, "h"),
    "TOUCH_CHAT": (1, "x"),
    "TOUCH_CHAT_OF_TURN": (1, "x"),
}


def plan(store: Store, sql: str, values: Sequence[object]) -> list[str]:
    return [str(row["detail"]) for row in store._conn.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize("name", PLANS)
def test_no_query_scans_a_table(store: Store, name: str) -> None:
    steps = plan(store, getattr(queries, name), PLANS[name])
    # "SCAN path" is the loop over the turns of one path
    scans = [step for step in steps if step.startswith("SCAN") and step != "SCAN path" and "USING" not in step]
    assert steps
    assert scans == []


@pytest.mark.parametrize(
    ("shelf", "index"),
    [
        (Shelf.OPEN, "open_chats"),
        (Shelf.ARCHIVED, "archived_chats"),
        (Shelf.TRASH, "trashed_chats"),
        (Shelf.ALL, "chats_by_activity"),
    ],
)
def test_the_list_of_chats_is_read_in_order_and_not_sorted(store: Store, shelf: Shelf, index: str) -> None:
    first, *others = plan(store, queries.chats_on(shelf), (20,))
    assert f"chats USING INDEX {index}" in first
    assert others == [
        "SEARCH tip USING INDEX sqlite_autoindex_turns_1 (id=?) LEFT-JOIN",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH tags USING PRIMARY KEY (chat_id=?)",
    ]


def test_chats_with_a_tag_are_found_by_the_tag(store: Store) -> None:
    steps = plan(store, queries.chats_on(Shelf.OPEN, 1), ("work", 20))
    assert any("chats_by_tag (tag=?)" in step for step in steps)


def test_a_turn_of_an_unknown_chat_cannot_exist(store: Store) -> None:
    row = ("t", "nobody", 1, "p", "h", 0, b"", 0)
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        store._conn.execute(
            "INSERT INTO turns (id, chat_id, depth, prompt, host, kept_tokens, prompt_ids, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
