"""Laws of files from every earlier schema: they become what a new file is, keep their rows, and are copied first."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.data.schema_dumps import SCHEMAS, dump, fill

from octavo_data import Shelf, Store, StoreWriteError
from octavo_data.connection import open_file
from octavo_data.migrations import APPLICATION_ID, CHANGES_DATA, MIGRATIONS
from octavo_data.search import search
from octavo_data.upgrading import NUM_KEPT_BACKUPS, applied, backups, migrate
from octavo_data.upkeep import check

DUMPS = sorted(SCHEMAS.glob("*.sql"))
OLDER = [dump for dump in DUMPS if int(dump.stem) < len(MIGRATIONS)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "octavo.db"


def build(path: Path, sql: str) -> None:
    with closing(open_file(path)) as conn:
        conn.executescript(sql)


def schema(conn: sqlite3.Connection) -> set[tuple[str, ...]]:
    return {tuple(row) for row in conn.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")}


def test_every_schema_has_a_dump() -> None:
    """schemas/README.md says how one is made."""
    assert [int(dump.stem) for dump in DUMPS] == list(range(1, len(MIGRATIONS) + 1))


@pytest.mark.parametrize("dumped", DUMPS, ids=lambda file: file.stem)
def test_an_older_file_gets_the_schema_of_a_new_one_and_keeps_its_rows(dumped: Path, path: Path) -> None:
    build(path, dumped.read_text())
    with Store(path) as store, Store(path.with_name("new.db")) as new:
        assert schema(store._conn) == schema(new._conn)
        assert store._conn.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        rivers, half, empty = sorted(store.chats(shelf=Shelf.ALL), key=lambda chat: chat.id)
        assert [rivers.title, half.title, empty.title] == ["Rivers", "Half a chat", "Empty"]
        first, retry = store.turns(rivers.id)
        assert [first.reply, retry.reply, retry.model] == ["The Nile, it's said.", "The Yangtze.", "smollm2-135m"]
        assert store.token_ids(retry.id) == [1, 2, 5, 8, 5, 6]
        (told,) = store.turns(half.id)
        assert (told.status, told.reply, told.model) == ("interrupted", "Once upon", "echo")
        assert store.token_ids(told.id) == [4_294_967_295, 0, 9]
        assert store.turns(empty.id) == []
        found = {
            words: [hit.title for hit in search(store, words)] for words in ("once", "nile river", "amazonas", "川")
        }
        assert found == {"once": ["Half a chat"], "nile river": ["Rivers"], "amazonas": ["Rivers"], "川": ["Rivers"]}
        assert check(store) == []


@pytest.mark.parametrize("dumped", DUMPS, ids=lambda file: file.stem)
def test_an_older_file_goes_on_as_a_new_one_does(dumped: Path, path: Path) -> None:
    build(path, dumped.read_text())
    with Store(path) as store:
        fill(store)
        assert [hit.title for hit in search(store, "longest river")] == ["Rivers", "Rivers"]
        assert check(store) == []


def test_a_dump_builds_the_file_that_it_was_made_of(path: Path) -> None:
    with Store(path) as store:
        fill(store)
        store._conn.row_factory = None
        dumped = list(dump(store._conn))
        build(path.with_name("again.db"), "\n".join(dumped))
    with closing(open_file(path.with_name("again.db"))) as again:
        assert list(dump(again)) == dumped


# ---- copies before a migration that changes data ----


def test_rows_are_copied_before_they_are_changed(path: Path) -> None:
    build(path, OLDER[0].read_text())
    before = path.read_bytes()
    Store(path).close()
    (copy,) = backups(path)
    assert (copy.name, oct(copy.stat().st_mode & 0o777)) == ("octavo.db.bak-001", "0o600")
    with closing(sqlite3.connect(copy)) as conn, closing(sqlite3.connect(path.with_name("old.db"))) as old:
        assert applied(conn) == {MIGRATIONS[0].__name__}
        path.with_name("old.db").write_bytes(before)
        old.row_factory = conn.row_factory = None
        assert list(dump(conn)) == list(dump(old))


def test_a_file_without_chats_needs_no_copy(path: Path) -> None:
    Store(path).close()
    assert backups(path) == []
    assert {migration.__name__ for migration in MIGRATIONS} > CHANGES_DATA


def test_only_the_newest_copies_are_kept(path: Path) -> None:
    build(path, OLDER[0].read_text())
    for number in (990, 991, 992):
        path.with_name(f"octavo.db.bak-{number}").touch()
    path.with_name("octavo.db.bak-mine").touch()
    Store(path).close()
    assert [copy.name[-3:] for copy in backups(path)] == ["990", "991", "992"]
    assert len(backups(path)) == NUM_KEPT_BACKUPS
    assert path.with_name("octavo.db.bak-mine").exists()


def test_without_room_for_the_copy_nothing_is_migrated(path: Path) -> None:
    build(path, OLDER[0].read_text())
    path.with_name("octavo.db.bak-001").mkdir()
    with pytest.raises(StoreWriteError, match=r"octavo\.db\.bak-001"):
        Store(path)
    with closing(open_file(path)) as conn:
        assert applied(conn) == {MIGRATIONS[0].__name__}
        path.with_name("octavo.db.bak-001").rmdir()
        migrate(conn, path)
        assert len(applied(conn)) == len(MIGRATIONS)
