"""Laws of the file: who may read it, what it refuses, and what a failing write says and leaves."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo_data import Chat, Store, StoreError, StoreOpenError, StoreReadError, StoreWriteError, Turn

NOBODY = 65534


@pytest.fixture
def turn(store: Store, chat: Chat) -> Turn:
    turn = store.begin_turn(chat.id, prompt="Why?", host="h", kept_tokens=0, prompt_ids=[1])
    store.flush_turn(turn.id, reply="Because", reply_ids=[2])
    return turn


@pytest.fixture
def plain_folder() -> Iterator[Path]:
    """A folder in which permissions count: root, whom they do not stop, becomes nobody for the test."""
    folder = Path(tempfile.mkdtemp(prefix="octavo-"))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        folder.chmod(0o700)
        if is_root:
            os.seteuid(0)
        shutil.rmtree(folder)


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_only_the_owner_may_read_the_file_and_the_folders_made_for_it(tmp_path: Path) -> None:
    path = tmp_path / "share" / "octavo" / "octavo.db"
    old = os.umask(0)
    try:
        with Store(path) as store:
            store.create_chat(title="t", model="m")
            assert {p.name: mode(p) for p in path.parent.iterdir()} == dict.fromkeys(
                ("octavo.db", "octavo.db-wal", "octavo.db-shm"), "0o600"
            )
    finally:
        os.umask(old)
    assert (mode(path.parent), mode(path.parent.parent)) == ("0o700", "0o700")


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "octavo.db"
    Store(path).close()
    path.chmod(0o644)
    Store(path).close()
    assert mode(path) == "0o600"


def test_the_connection_has_our_settings(store: Store) -> None:
    def pragma(name: str) -> object:
        return store._conn.execute(f"PRAGMA {name}").fetchone()[0]

    names = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
    assert [pragma(name) for name in names] == ["wal", 1, 5000, 1]


@pytest.mark.parametrize(
    "content", [b"xy", b"notes of mine\n" * 9, b"\x89PNG" * 1000, b"SQLite format 3\0" + b"\xff" * 999]
)
def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "octavo.db"
    path.write_bytes(content)
    with pytest.raises(StoreOpenError) as caught:
        Store(path)
    assert str(path) in caught.value.message
    assert caught.value.remedy == "Move the file away, or set OCTAVO_HOME to another folder."
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "octavo.db"
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE migrations (name TEXT)")
    conn.close()
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(StoreOpenError, match="is a database of another program"):
        Store(path)
    assert (path.read_bytes(), mode(path)) == (before, "0o644")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_place_of_the_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(StoreOpenError, match=str(tmp_path)):
        Store(tmp_path)
    assert mode(tmp_path) == "0o755"


def test_a_file_in_the_place_of_a_folder_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "octavo").write_text("")
    with pytest.raises(StoreOpenError, match=r"Check the folder's permissions"):
        Store(tmp_path / "octavo" / "octavo.db")


def test_a_full_disk_is_a_write_error_and_the_last_flush_stays(store: Store, turn: Turn) -> None:
    store._conn.execute("PRAGMA max_page_count = 1")  # SQLite's own "disk full", at the size that it has now
    with pytest.raises(StoreWriteError) as caught:
        store.flush_turn(turn.id, reply="x" * 1_000_000, reply_ids=[2, 3])
    assert caught.value.message == f"cannot write to {store.path}: database or disk is full"
    assert caught.value.remedy == "Free some disk space."
    assert store.turn(turn.id).reply == "Because"
    store._conn.execute("PRAGMA max_page_count = 1000000")
    store.flush_turn(turn.id, reply="Because of", reply_ids=[2, 3])
    assert store.token_ids(turn.id) == [1, 2, 3]


def test_a_store_that_stays_locked_is_a_write_error(store: Store, turn: Turn) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store._conn.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(StoreWriteError, match=r"database is locked\. Another program holds the file"):
        store.flush_turn(turn.id, reply="x", reply_ids=[2])
    assert store.turn(turn.id).reply == "Because"
    other.close()
    store.flush_turn(turn.id, reply="x", reply_ids=[2])


def test_a_read_only_file_is_read_and_a_write_says_why_it_failed(plain_folder: Path) -> None:
    path = plain_folder / "octavo.db"
    with Store(path) as store:
        chat = store.create_chat(title="t", model="m")
    path.chmod(0o400)
    with Store(path) as store:
        assert store.chats() == [chat]
        with pytest.raises(StoreWriteError, match=r"readonly database\. Make the file and its folder writable"):
            store.rename_chat(chat.id, "x")
        assert store.chat(chat.id) == chat


def test_a_folder_that_may_not_be_entered_is_an_error_with_a_remedy(plain_folder: Path) -> None:
    plain_folder.chmod(0o500)
    with pytest.raises(StoreOpenError, match=f"cannot open {plain_folder}.*Permission denied"):
        Store(plain_folder / "octavo.db")


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "octavo.db"
    with Store(path) as store:
        for number in range(200):
            store.create_chat(title=f"{number}" * 50, model="m")
    page = 4096
    data = path.read_bytes()
    path.write_bytes(data[: 4 * page] + b"\xa5" * (len(data) - 4 * page))
    with pytest.raises(StoreError, match=str(path)) as caught, Store(path) as store:
        store.chats()
    assert isinstance(caught.value, StoreOpenError | StoreReadError)


def test_a_closed_store_closes_again_without_harm(tmp_path: Path) -> None:
    store = Store(tmp_path / "octavo.db")
    store.close()
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.chats()
