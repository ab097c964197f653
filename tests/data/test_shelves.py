"""Laws of pins, archive, trash and tags: what is listed, what is found, what comes back, and what is gone."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo_data import Chat, ChatNotFoundError, ChatTrashedError, Shelf, Store, TagError, Turn, shelves
from octavo_data.search import search
from octavo_data.upkeep import check

SHELVES = list(Shelf)


def said(store: Store, chat_id: str, prompt: str, parent_id: str | None = None) -> Turn:
    """A turn that is over."""
    tip = store.chat(chat_id).tip_id
    turn = store.begin_turn(chat_id, prompt=prompt, host="h", kept_tokens=0, prompt_ids=[1], parent_id=parent_id or tip)
    store.interrupt_turns("h")
    return turn


def listed(store: Store, shelf: Shelf = Shelf.OPEN, *tags: str) -> list[str]:
    return [chat.title for chat in store.chats(shelf=shelf, tags=tags)]


@pytest.fixture
def four(store: Store) -> list[Chat]:
    chats = [store.create_chat(title=title, model="m") for title in "abcd"]
    for chat in chats:
        said(store, chat.id, f"about {chat.title}")
    return chats


def test_pinned_chats_come_first_and_the_last_chat_is_still_the_last(store: Store, four: list[Chat]) -> None:
    shelves.pin(store, four[1].id)
    assert listed(store) == ["b", "d", "c", "a"]
    assert (store.chat(four[1].id).is_pinned, store.last_chat().title) == (True, "d")
    shelves.pin(store, four[1].id, False)
    assert listed(store) == ["d", "c", "b", "a"]


def test_an_archived_chat_is_off_the_list_and_still_found_until_somebody_asks_in_it(
    store: Store, four: list[Chat]
) -> None:
    shelves.archive(store, four[3].id)
    assert (listed(store), listed(store, Shelf.ARCHIVED), listed(store, Shelf.ALL)) == (
        ["c", "b", "a"], ["d"], ["d", "c", "b", "a"],
    )  # fmt: skip
    assert (store.last_chat().title, [hit.title for hit in search(store, "about")]) == ("c", ["d", "c", "b", "a"])
    said(store, four[3].id, "once more")
    assert listed(store) == ["d", "c", "b", "a"]


def test_what_is_in_the_trash_is_neither_listed_nor_found_nor_asked_and_comes_back_where_it_was(
    store: Store, four: list[Chat]
) -> None:
    archived = four[0].id
    shelves.archive(store, archived)
    before = store.chat(archived), store.turns(archived)
    shelves.trash(store, archived)
    assert [listed(store, shelf) for shelf in SHELVES] == [["d", "c", "b"], [], ["a"], ["d", "c", "b"]]
    assert [hit.title for hit in search(store, "about")] == ["d", "c", "b"]
    with pytest.raises(ChatTrashedError, match=f"in the trash. Take it out: octavo chats restore {archived}"):
        said(store, archived, "hello?")
    shelves.restore(store, archived)
    assert (store.chat(archived), store.turns(archived)) == before


def test_emptying_the_trash_leaves_no_word_of_it(store: Store, four: list[Chat]) -> None:
    shelves.set_tags(store, four[2].id, add=["x"])
    shelves.trash(store, four[2].id)
    assert (shelves.empty_trash(store), shelves.empty_trash(store)) == (1, 0)
    with pytest.raises(ChatNotFoundError):
        store.chat(four[2].id)
    assert {row[0] for row in store._conn.execute("SELECT DISTINCT chat_id FROM turns")} == {
        four[0].id, four[1].id, four[3].id,
    }  # fmt: skip
    assert (search(store, "about c"), store._conn.execute("SELECT * FROM tags").fetchall(), check(store)) == (
        [],
        [],
        [],
    )


def test_a_chat_whose_reply_runs_stays_in_the_trash(store: Store, four: list[Chat]) -> None:
    turn = store.begin_turn(four[0].id, prompt="go on", host="h", kept_tokens=0, prompt_ids=[])
    shelves.trash(store, four[0].id)
    assert shelves.empty_trash(store) == 0
    store.flush_turn(turn.id, reply="still here", reply_ids=[])
    store.interrupt_turns("h")
    assert shelves.empty_trash(store) == 1


def test_a_fork_is_one_row_and_outlives_the_chat_that_it_came_from(store: Store, four: list[Chat]) -> None:
    first = store.turns(four[0].id)[0]
    said(store, four[0].id, "only in the first one")
    num_turns = store._conn.execute("SELECT count(*) FROM turns").fetchone()[0]
    fork, again = shelves.fork(store, four[0].id, first.id), shelves.fork(store, four[0].id, None)
    assert store._conn.execute("SELECT count(*) FROM turns").fetchone()[0] == num_turns
    assert ([turn.id for turn in store.turns(fork)], store.turns(again)) == ([first.id], [])
    below = said(store, fork, "only in the fork")
    shelves.trash(store, four[0].id)
    assert shelves.empty_trash(store) == 1
    assert [turn.id for turn in store.turns(fork)] == [first.id, below.id]
    assert {hit.chat_id for hit in search(store, "a about")} == {fork}
    assert (search(store, "only in the first"), check(store)) == ([], [])


def test_tags_are_set_and_taken_and_chats_are_found_by_all_of_them(store: Store, four: list[Chat]) -> None:
    shelves.set_tags(store, four[0].id, add=["Work", "c++"])
    shelves.set_tags(store, four[1].id, add=["work", "work"])
    assert (store.chat(four[0].id).tags, store.chat(four[1].id).tags) == (("c++", "work"), ("work",))
    assert (listed(store, Shelf.OPEN, "work"), listed(store, Shelf.OPEN, "work", "c++")) == (["b", "a"], ["a"])
    shelves.set_tags(store, four[0].id, remove=["WORK", "never"])
    assert (store.chat(four[0].id).tags, listed(store, Shelf.OPEN, "work")) == (("c++",), ["b"])


@pytest.mark.parametrize("text", ["", " ", "two words", "+plus", "-minus", "x" * 41, "new\nline", "\0", "\x1b[2J"])
def test_what_is_no_word_is_no_tag(store: Store, chat: Chat, text: str) -> None:
    with pytest.raises(TagError, match="cannot be a tag"):
        shelves.set_tags(store, chat.id, add=[text])
    assert store.chat(chat.id).tags == ()


@given(st.text(st.characters(exclude_categories=[]), max_size=45))
def test_a_tag_of_a_tag_is_itself(text: str) -> None:
    try:
        tag = shelves.tag_of(text)
    except TagError:
        return
    assert shelves.tag_of(tag) == tag
    assert tag.split() == [tag]


def test_an_unknown_chat_is_named(store: Store) -> None:
    for call in (shelves.pin, shelves.archive, shelves.trash, shelves.restore, shelves.set_tags):
        with pytest.raises(ChatNotFoundError, match="no chat 'nobody'"):
            call(store, "nobody")


@settings(max_examples=40)
@given(data=st.data())
def test_after_any_forks_and_deletions_every_path_that_is_left_is_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path: Path = tmp_path_factory.mktemp("trash") / "octavo.db"
    with Store(path) as store:
        paths: dict[str, list[str]] = {}
        for number in range(data.draw(st.integers(1, 12))):
            if not paths or data.draw(st.integers(0, 2)) == 0:
                chat_id = store.create_chat(title=str(number), model="m").id
                paths[chat_id] = []
            chat_id = data.draw(st.sampled_from(sorted(paths)))
            if data.draw(st.booleans()) and paths[chat_id]:
                turn_id = data.draw(st.sampled_from(paths[chat_id]))
                before = paths[chat_id][: paths[chat_id].index(turn_id) + 1]
                chat_id = shelves.fork(store, chat_id, turn_id)
                paths[chat_id] = before
            paths[chat_id] = [*paths[chat_id], said(store, chat_id, f"word{number}").id]
        thrown = data.draw(st.sets(st.sampled_from(sorted(paths))))
        for chat_id in thrown:
            shelves.trash(store, chat_id)
        for chat_id in data.draw(st.sets(st.sampled_from(sorted(paths)))) & thrown:
            shelves.restore(store, chat_id)
            thrown.remove(chat_id)
        assert shelves.empty_trash(store) == len(thrown)
        left = {chat_id: turns for chat_id, turns in paths.items() if chat_id not in thrown}
        assert {chat_id: [turn.id for turn in store.turns(chat_id)] for chat_id in left} == left
        stored = {row[0] for row in store._conn.execute("SELECT id FROM turns")}
        assert stored == {turn_id for turns in left.values() for turn_id in turns}
        assert check(store) == []
