"""Laws of the import: what is taken and what is left is counted, and a bad file gives its place and nothing else."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.data.exchange_stage import chat_of, refusal, taken_of

from octavo_data import Chat, Store
from octavo_data.exchange.entries import ChatEntry
from octavo_data.exchange.exporting import EXPORTERS
from octavo_data.exchange.trees import Added, add_chats, read_chats
from octavo_data.shelves import fork
from octavo_data.upkeep import check

# ---- our own ----


def own(*entries: ChatEntry) -> dict[str, Any]:
    document: dict[str, Any] = json.loads("".join(EXPORTERS["json"](entries)))
    return document


def test_a_chat_with_other_content_comes_under_new_ids(store: Store) -> None:
    entry = chat_of(("one", "1"), ("two", "2"))
    add_chats(store, [entry])
    store.rename_chat(entry.id, "Renamed")
    assert add_chats(store, [entry]) == Added(num_chats=1, num_turns=2, num_renamed=1)
    copy, original = store.chats()
    assert {original.title, copy.title} == {"Renamed", "Rivers"}
    ids = {turn.id for chat in store.chats() for turn in store.turns(chat.id)}
    assert len(ids) == 4


def test_a_chat_whose_turns_have_other_content_in_another_comes_under_new_ids(store: Store) -> None:
    entry = chat_of(("one", "1"))
    turn = replace(entry.turns[0], prompt="other")
    assert add_chats(store, [entry, replace(entry, id="0" * 26, turns=(turn,))]) == Added(
        num_chats=2, num_turns=2, num_renamed=1
    )
    assert {chat.turns[0].prompt for chat in read_chats(store, [chat.id for chat in store.chats()])} == {"one", "other"}


def asked(store: Store, chat_id: str, prompt: str, parent_id: str | None) -> str:
    turn = store.begin_turn(chat_id, prompt=prompt, host="h", kept_tokens=0, prompt_ids=[1], parent_id=parent_id)
    store.interrupt_turns("h")
    return turn.id


def test_forks_come_as_they_were_and_once(store: Store, chat: Chat, tmp_path: Path) -> None:
    """One of the tip, one of another branch, in whatever order a file has them."""
    first = asked(store, chat.id, "one", None)
    branches = [asked(store, chat.id, prompt, first) for prompt in ("a side", "the tip")]
    forks = [fork(store, chat.id, turn_id) for turn_id in branches]
    asked(store, forks[0], "only in the fork", branches[0])
    whole = list(read_chats(store, [*forks, chat.id]))
    with Store(tmp_path / "other.db") as other:
        assert add_chats(other, whole) == Added(num_chats=3, num_turns=4)
        assert list(read_chats(other, [*forks, chat.id])) == whole
        assert add_chats(other, whole) == Added(num_known=3)
        assert check(other) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ((), {"version": 3}, "/version: is 3, and this octavo reads up to 2; update it"),
        (("chats", 0), {"title": "\ud800"}, "JSON is malformed"),
        ((), {"extra": 1}, "Object contains unknown field `extra`"),
        (("chats", 0), {"title": 7}, "/chats/0/title: Expected `str`, got `int`"),
        (("chats", 0), {"id": "../x"}, "/chats/0/id: Expected `str` matching regex"),
        (("chats", 0), {"tip_id": "0" * 26}, "/chats/0/tip_id: no turn"),
        (("chats", 0), {"updated_at": 1}, "/chats/0/updated_at: is before created_at"),
        (("chats", 0, "turns", 0), {"kept_tokens": 1}, "/chats/0/turns/0/kept_tokens: is 1, of a parent that has 0"),
        (("chats", 0, "turns", 1), {"kept_tokens": 4}, "/chats/0/turns/1/kept_tokens: is 4, of a parent that has 3"),
        (("chats", 0, "turns", 1), {"parent_id": "0" * 26}, "/chats/0/turns/1/parent_id: no turn"),
        (("chats", 0, "turns", 1), {"status": "running"}, "/chats/0/turns/1/ended_at: does not fit the status"),
        (("chats", 0, "turns", 1), {"status": "merry"}, "/chats/0/turns/1/status: Invalid enum value 'merry'"),
        (("chats", 0, "turns", 1), {"reply_ids": [2**32]}, "/chats/0/turns/1/reply_ids/0: Expected `int`"),
        (("chats", 0, "turns", 1, "timings"), {"total_ms": float("inf")}, "Infinity is no number of JSON"),
    ],
)
def test_a_damaged_export_is_refused_with_the_place(
    file: Path, path: tuple[str | int, ...], value: dict[str, Any], said: str
) -> None:
    document = own(chat_of(("one", "1"), ("two", "2")))
    at: Any = document
    for step in path:
        at = at[step]
    at |= value
    assert refusal(file, document).startswith(said) or not said.startswith("/")
    assert said in refusal(file, document)


def test_turns_in_a_circle_are_refused(file: Path) -> None:
    document = own(chat_of(("one", "1"), ("two", "2")))
    one, two = document["chats"][0]["turns"]
    one["parent_id"] = two["id"]
    assert "is its own ancestor" in refusal(file, document)


def test_children_may_come_before_their_parents(file: Path) -> None:
    entry = chat_of(("one", "1"), ("two", "2"))
    document = own(entry)
    document["chats"][0]["turns"].reverse()
    assert taken_of(file, document).chats == [entry]


# ---- what is none of these ----


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1, column 1: neither Octavo's JSON"),
        (b"Dear diary", "line 1, column 1: neither Octavo's JSON"),
        (b"\xff\xfe\x00", "byte 0: neither Octavo's JSON"),
        (b"[]", "neither Octavo's JSON"),
        (b'{"a": 1}', "neither Octavo's JSON"),
        (b'{"format": "octavo-chats",\n "version": 1, "chats": [', "line 2, column 26: not whole JSON"),
        (b"[" * 100_000, "not JSON that can be read"),
        (b"[1" + b"0" * 5000 + b"]", "not JSON that can be read"),
    ],
)
def test_garbage_is_refused(file: Path, content: bytes, reason: str) -> None:
    assert refusal(file, content).startswith(reason)


def test_no_beginning_of_a_file_is_taken_for_the_whole(file: Path) -> None:
    whole = "".join(EXPORTERS["json"]([chat_of(("one", "1"))])).rstrip()
    for length in range(0, len(whole), 7):
        refusal(file, whole[:length])
    assert taken_of(file, whole).chats


def test_a_failing_write_leaves_nothing_of_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = chat_of(("one", "1")), chat_of(("two", "2"))
    broken = ChatEntry(**{name: getattr(bad, name) for name in bad.__struct_fields__} | {"updated_at": 0})
    with pytest.raises(sqlite3.IntegrityError):
        add_chats(store, [good, broken])
    assert store.chats() == []
