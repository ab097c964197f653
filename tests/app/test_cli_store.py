"""Laws of the commands that look after stored chats: what they print, what they change, and what they refuse."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from octavo.cli.main import run
from octavo_data import Chat, Shelf, Store, shelves
from octavo_data.search import search

Octavo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path))
    with Store(tmp_path / "data" / "octavo.db") as opened:
        yield opened


@pytest.fixture
def octavo(store: Store, capsys: pytest.CaptureFixture[str]) -> Octavo:
    def run_it(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


@pytest.fixture
def rivers(store: Store) -> Chat:
    return said(store, "Rivers", "Which river is the longest?", "The Nile, some say.")


@pytest.fixture
def seas(store: Store) -> Chat:
    return said(store, "Seas", "Which sea is the deepest?", "The Philippine Sea.")


def said(store: Store, title: str, prompt: str, reply: str) -> Chat:
    chat = store.create_chat(title=title, model="m")
    turn = store.begin_turn(chat.id, prompt=prompt, host="h", kept_tokens=0, prompt_ids=[])
    store.flush_turn(turn.id, reply=reply, reply_ids=[])
    store.interrupt_turns("h")
    return store.chat(chat.id)


def titles(out: str) -> list[str]:
    return [chat["title"] for chat in json.loads(out)]


# ---- search ----


def test_search_prints_chat_time_title_and_snippet(octavo: Octavo, rivers: Chat, seas: Chat) -> None:
    code, out, err = octavo("chats", "search", "longest", "riv")
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith(f"{rivers.id}  20")
    assert first.endswith("  Rivers")
    assert second == "    Which river is the longest? The Nile, some say."


def test_search_as_json_has_what_a_script_needs(octavo: Octavo, rivers: Chat, seas: Chat) -> None:
    _, out, _ = octavo("chats", "search", "--json", "the", "--limit", "1")
    (hit,) = json.loads(out)
    assert hit.keys() == {"chat_id", "title", "turn_id", "created_at", "snippet", "spans"}
    assert (hit["chat_id"], hit["turn_id"]) == (seas.id, seas.tip_id)
    assert [hit["snippet"][begin:end].lower() for begin, end in hit["spans"]] == ["the"] * len(hit["spans"])


@pytest.mark.parametrize(
    "words", ['"', "AND", "NOT nile", "nile*(", "prompt:nile", "-nile", "NEAR(", "'; DROP TABLE x"]
)
def test_search_takes_whatever_is_typed(octavo: Octavo, rivers: Chat, words: str) -> None:
    code, _, err = octavo("chats", "search", "--", words)
    assert (code, "Traceback" in err) == (0, False)


def test_search_without_a_hit_says_so(octavo: Octavo, rivers: Chat) -> None:
    assert octavo("chats", "search", "ocean") == (0, "", "Nothing found.\n")
    assert octavo("chats", "search", "--json", "ocean")[1] == "[]\n"


# ---- shelves ----


def test_pinned_archived_and_tagged_chats_are_listed_where_they_are(octavo: Octavo, rivers: Chat, seas: Chat) -> None:
    assert titles(octavo("chats", "--json")[1]) == ["Seas", "Rivers"]
    assert octavo("chats", "pin", rivers.id[:20] + rivers.id[20:])[0] == 0
    assert octavo("chats", "tag", rivers.id, "+water", "Deep")[1] == "deep water\n"
    assert octavo("chats")[1].splitlines()[0].endswith("Rivers [pinned #deep #water]")
    assert octavo("chats", "tag", rivers.id, "-deep", "+long")[1] == "long water\n"
    assert titles(octavo("chats", "list", "--tag", "WATER", "--json")[1]) == ["Rivers"]
    octavo("chats", "archive", rivers.id)
    assert titles(octavo("chats", "--json")[1]) == ["Seas"]
    assert titles(octavo("chats", "list", "--archived", "--json")[1]) == ["Rivers"]
    assert titles(octavo("chats", "list", "--all", "--json", "-n", "5")[1]) == ["Seas", "Rivers"]
    octavo("chats", "unarchive", rivers.id)
    octavo("chats", "unpin", rivers.id)
    assert titles(octavo("chats", "--json")[1]) == ["Seas", "Rivers"]


def test_a_removed_chat_is_in_the_trash_and_comes_back(octavo: Octavo, rivers: Chat, seas: Chat) -> None:
    code, out, err = octavo("chats", "rm", rivers.id)
    assert (code, out) == (0, "")
    assert err == f'"Rivers" is in the trash. Undo: octavo chats restore {rivers.id}\n'
    assert (titles(octavo("chats", "--json")[1]), titles(octavo("chats", "trash", "--json")[1])) == (
        ["Seas"],
        ["Rivers"],
    )
    assert octavo("chats", "search", "nile")[1] == ""
    assert octavo("chats", "restore", rivers.id) == (0, "", '"Rivers" is back.\n')
    assert octavo("chats", "restore", rivers.id) == (0, "", '"Rivers" was not in the trash.\n')
    assert titles(octavo("chats", "--json")[1]) == ["Seas", "Rivers"]
    assert octavo("chats", "trash")[2] == "The trash is empty.\n"


def test_the_trash_is_emptied_only_by_somebody_who_is_sure(octavo: Octavo, store: Store, rivers: Chat) -> None:
    assert octavo("chats", "empty-trash") == (0, "", "The trash is empty.\n")
    octavo("chats", "rm", rivers.id)
    code, _, err = octavo("chats", "empty-trash")
    assert (code, "say --yes" in err, len(store.chats(shelf=Shelf.TRASH))) == (2, True, 1)
    assert octavo("chats", "empty-trash", "--yes") == (0, "", "1 chat deleted.\n")
    assert octavo("chats", "restore", rivers.id)[0] == 1


def test_a_chat_is_renamed_and_forked(octavo: Octavo, store: Store, rivers: Chat) -> None:
    octavo("chats", "rename", rivers.id, "Long", "rivers")
    assert octavo("chats", "rename", rivers.id, " ")[0] == 2
    fork = octavo("chats", "fork", rivers.id)[1].strip()
    assert [store.chat(chat_id).title for chat_id in (rivers.id, fork)] == ["Long rivers"] * 2
    assert store.turns(fork) == store.turns(rivers.id)
    assert store.turns(octavo("chats", "fork", rivers.id, "--turn", "0")[1].strip()) == []
    assert octavo("chats", "fork", rivers.id, "--turn", "2")[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [["pin"], ["unpin"], ["archive"], ["unarchive"], ["rm"], ["restore"], ["fork"], ["tag"], ["rename"], ["show"]],
)
def test_a_wrong_id_is_one_line_and_changes_nothing(octavo: Octavo, rivers: Chat, arguments: list[str]) -> None:
    more = ["x"] if arguments[0] in ("tag", "rename") else []
    code, out, err = octavo("chats", *arguments, "nobody", *more)
    assert (code, out, err) == (1, "", "octavo: no chat 'nobody'. See: octavo chats.\n")


def test_a_word_that_cannot_be_a_tag_is_refused(octavo: Octavo, store: Store, rivers: Chat) -> None:
    code, _, err = octavo("chats", "tag", rivers.id, "fine", "not fine")
    assert (code, err.startswith("octavo: 'not fine' cannot be a tag. ")) == (1, True)
    assert store.chat(rivers.id).tags == ()


def test_an_import_of_what_is_in_the_trash_says_where_it_is(octavo: Octavo, tmp_path: Path, rivers: Chat) -> None:
    file = str(tmp_path / "all.json")
    octavo("chats", "export", "--all", "-o", file)
    octavo("chats", "rm", rivers.id)
    assert octavo("chats", "import", file)[2].endswith("skipped: 1 chat already here (1 in the trash).\n")


def test_an_export_of_all_has_the_archive_and_not_the_trash(
    octavo: Octavo, store: Store, rivers: Chat, seas: Chat
) -> None:
    shelves.archive(store, rivers.id)
    shelves.trash(store, seas.id)
    assert [
        chat["title"] for chat in json.loads(octavo("chats", "export", "--all", "--format", "json")[1])["chats"]
    ] == ["Rivers"]


# ---- octavo db ----

CHILD = """
INSERT INTO turns (id, chat_id, parent_id, depth, prompt, host, kept_tokens, prompt_ids, created_at)
SELECT 'child', chat_id, id, 7, 'p', 'h', 0, x'', 0 FROM turns
"""


def test_a_backup_is_a_whole_store_made_while_another_connection_writes(
    octavo: Octavo, store: Store, rivers: Chat, tmp_path: Path
) -> None:
    with store.writing() as conn:
        conn.execute("UPDATE chats SET title = 'half a write'")
        code, out, err = octavo("db", "backup", str(tmp_path / "copy.db"))
    assert (code, out, err) == (0, f"{tmp_path / 'copy.db'}\n", "")
    assert [file.name for file in tmp_path.glob("copy.db*")] == ["copy.db"]
    with Store(tmp_path / "copy.db") as copy:
        assert [chat.title for chat in copy.chats()] == ["Rivers"]
        assert len(search(copy, "nile")) == 1


def test_a_backup_lies_beside_the_file_and_replaces_nothing(octavo: Octavo, store: Store, rivers: Chat) -> None:
    made = Path(octavo("db", "backup")[1].strip())
    assert (made.parent, made.suffix, oct(made.stat().st_mode & 0o777)) == (store.path.parent, ".db", "0o600")
    before = made.read_bytes()
    code, out, err = octavo("db", "backup", str(made))
    assert (code, out) == (1, "")
    assert err == f"octavo: {made} exists already. Choose another name, or move it away.\n"
    assert (made.read_bytes(), sorted(made.parent.glob(".*"))) == (before, [])
    assert octavo("db", "backup", str(made.parent / "no" / "x.db"))[0] == 1


def test_a_file_in_order_is_said_to_be(octavo: Octavo, store: Store, rivers: Chat, seas: Chat) -> None:
    assert octavo("db", "check") == (0, f"{store.path}: all in order (chats: 2, turns: 2).\n", "")
    code, out, _ = octavo("db", "check", "--json")
    assert (code, json.loads(out)) == (0, {"path": str(store.path), "chats": 2, "turns": 2, "problems": []})
    assert octavo("db", "path")[1] == f"{store.path}\n"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (CHILD, "a turn whose depth is not one more than its parent's: "),
        ("UPDATE chats SET tip_id = NULL", "a chat with turns and no tip: "),
        ("UPDATE chats SET tip_id = 'gone'", "1 row of chats names a row of turns that is not there. Stop octavo"),
        ("DELETE FROM chats", "1 row of turns names a row of chats that is not there"),
        ("DROP TRIGGER turn_edited; UPDATE turns SET reply = 'x'", "Build it anew: octavo db vacuum."),
        ("UPDATE turns SET number = NULL", "no number: "),
    ],
)
def test_what_is_not_in_order_is_named_with_a_remedy(
    octavo: Octavo, store: Store, rivers: Chat, damage: str, said: str
) -> None:
    conn = sqlite3.connect(store.path)
    conn.executescript(damage)
    conn.close()
    code, out, _ = octavo("db", "check")
    assert (code, said in out) == (1, True), out
    assert json.loads(octavo("db", "check", "--json")[1])["problems"]


def test_damaged_pages_are_named(octavo: Octavo, store: Store, rivers: Chat) -> None:
    store.close()
    data = bytearray(store.path.read_bytes())
    for page in range(3, len(data) // 4096):
        data[page * 4096 : page * 4096 + 60] = b"\xff" * 60
    store.path.write_bytes(data)
    code, out, err = octavo("db", "check")
    assert code == 1
    assert "damaged" in out + err
    assert "backup" in out + err


def test_vacuum_gives_space_back_and_mends_the_index(octavo: Octavo, store: Store, rivers: Chat) -> None:
    big = said(store, "Big", "big " * 200_000, "")
    shelves.trash(store, big.id)
    shelves.empty_trash(store)
    with store.writing() as conn:
        conn.execute("INSERT INTO search (search) VALUES ('delete-all')")
    assert (search(store, "nile"), octavo("db", "check")[0]) == ([], 1)
    code, out, _ = octavo("db", "vacuum", "--json")
    sizes = json.loads(out)
    assert (code, sizes["bytes_after"] < sizes["bytes_before"] / 2) == (0, True)
    assert sizes["bytes_after"] == store.path.stat().st_size
    assert (len(search(store, "nile")), octavo("db", "check")[0]) == (1, 0)
    assert octavo("db", "vacuum")[1].startswith(f"{store.path}: ")
