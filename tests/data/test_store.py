"""Laws of the store that one process can show."""

import sqlite3
import threading
import time
from collections.abc import Callable

import pytest

from octavo_data import (
    AmbiguousChatError,
    Chat,
    ChatMovedError,
    ChatNotFoundError,
    NoChatsError,
    Store,
    Turn,
    TurnClosedError,
    TurnCounts,
    TurnNotFoundError,
    TurnStatus,
    TurnTimings,
)

COUNTS = TurnCounts(prompt_tokens=12, cached_tokens=8, computed_tokens=4, completion_tokens=3)
TIMINGS = TurnTimings(queue_ms=0.5, first_token_ms=20.25, total_ms=120.0, tokens_per_s=33.4)


def begin(store: Store, chat_id: str, prompt: str = "Why?", host: str = "host-1") -> Turn:
    return store.begin_turn(chat_id, prompt=prompt, host=host, kept_tokens=0, prompt_ids=[1, 2, 3])


def end(store: Store, turn_id: str, status: TurnStatus = TurnStatus.DONE, error: str = "") -> None:
    store.end_turn(
        turn_id,
        status=status,
        stop_reason="stop",
        reply="So.",
        reply_ids=[4, 5, 6],
        counts=COUNTS,
        timings=TIMINGS,
        error=error,
    )


def test_a_new_chat_has_no_turns(store: Store, chat: Chat) -> None:
    assert (chat.title, chat.model, chat.system) == ("Rivers", "smollm2-135m", "Be brief.")
    assert (chat.num_turns, chat.tip_id, chat.last_status) == (0, None, None)
    assert len(chat.id) == 26
    assert chat.id == chat.id.lower()
    assert store.turns(chat.id) == []


def test_a_turn_is_stored_as_running_before_its_first_token(store: Store, chat: Chat) -> None:
    turn = begin(store, chat.id)
    assert store.turns(chat.id) == [turn]
    assert (turn.status, turn.prompt, turn.reply, turn.stop_reason, turn.ended_at) == ("running", "Why?", "", "", None)
    assert turn.counts == TurnCounts(prompt_tokens=3)
    assert store.chat(chat.id).last_status is TurnStatus.RUNNING


def test_a_flush_keeps_the_reply_so_far_and_its_ids(store: Store, chat: Chat) -> None:
    turn = begin(store, chat.id)
    store.flush_turn(turn.id, reply="Be", reply_ids=[4])
    store.flush_turn(turn.id, reply="Because", reply_ids=[4, 5])
    flushed = store.turn(turn.id)
    assert (flushed.status, flushed.reply, flushed.counts.completion_tokens) == ("running", "Because", 2)
    assert store.token_ids(turn.id) == [1, 2, 3, 4, 5]


def test_an_ended_turn_gives_back_all_that_was_measured(store: Store, chat: Chat) -> None:
    turn = begin(store, chat.id)
    end(store, turn.id, TurnStatus.FAILED, error="out of memory")
    ended = store.turn(turn.id)
    assert (ended.status, ended.stop_reason, ended.error, ended.reply) == ("failed", "stop", "out of memory", "So.")
    assert (ended.counts, ended.timings) == (COUNTS, TIMINGS)
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.created_at


@pytest.mark.parametrize("status", [TurnStatus.DONE, TurnStatus.STOPPED, TurnStatus.INTERRUPTED, TurnStatus.FAILED])
def test_a_closed_turn_never_changes_again(store: Store, chat: Chat, status: TurnStatus) -> None:
    turn = begin(store, chat.id)
    end(store, turn.id, status)
    closed = store.turn(turn.id)
    with pytest.raises(TurnClosedError, match=f"{turn.id} is over already \\({status}\\)"):
        store.flush_turn(turn.id, reply="late", reply_ids=[9])
    with pytest.raises(TurnClosedError):
        end(store, turn.id)
    assert store.turn(turn.id) == closed


def test_a_turn_cannot_end_as_running(store: Store, chat: Chat) -> None:
    with pytest.raises(AssertionError):
        end(store, begin(store, chat.id).id, TurnStatus.RUNNING)


def test_each_turn_hangs_on_the_tip_and_becomes_the_tip(store: Store, chat: Chat) -> None:
    turns = [begin(store, chat.id, f"question {number}") for number in range(3)]
    assert [turn.parent_id for turn in turns] == [None, turns[0].id, turns[1].id]
    assert store.turns(chat.id) == turns
    after = store.chat(chat.id)
    assert (after.tip_id, after.num_turns) == (turns[2].id, 3)


def test_a_retry_hangs_on_its_named_parent_and_leaves_the_old_turn_in_the_tree(store: Store, chat: Chat) -> None:
    first, second = begin(store, chat.id), begin(store, chat.id, "then?")
    retry = store.begin_turn(
        chat.id, prompt="then?", host="host-1", kept_tokens=0, prompt_ids=[7], parent_id=second.parent_id
    )
    edit = store.begin_turn(chat.id, prompt="What?", host="host-1", kept_tokens=0, prompt_ids=[8], parent_id=None)
    assert retry.parent_id == first.id
    assert store.turns(chat.id) == [edit]
    assert store.chat(chat.id).num_turns == 1
    assert store.turn(second.id) == second


def test_a_turn_on_a_tip_that_was_overtaken_is_refused_and_changes_nothing(store: Store, chat: Chat) -> None:
    seen = begin(store, chat.id)
    tip = begin(store, chat.id, "from elsewhere")
    with pytest.raises(ChatMovedError, match="has gone on elsewhere"):
        store.begin_turn(
            chat.id, prompt="x", host="h", kept_tokens=3, prompt_ids=[], parent_id=seen.id, must_be_tip=True
        )
    assert store.chat(chat.id).tip_id == tip.id
    again = store.begin_turn(
        chat.id, prompt="x", host="h", kept_tokens=3, prompt_ids=[], parent_id=tip.id, must_be_tip=True
    )
    assert again.parent_id == tip.id


def test_the_parent_is_the_tip_as_it_is_inside_the_transaction(store: Store, chat: Chat) -> None:
    begin(store, chat.id)
    with Store(store.path) as other:
        slipped_in: list[Turn] = []

        def slip_in(sql: str) -> None:
            """The other process comes first at the last moment: just before ours takes the lock."""
            if sql == "BEGIN IMMEDIATE":
                slipped_in.append(begin(other, chat.id, "from elsewhere"))

        store._conn.set_trace_callback(slip_in)
        turn = begin(store, chat.id, "ours")
        store._conn.set_trace_callback(None)
    assert [turn.parent_id] == [other_turn.id for other_turn in slipped_in]
    assert [t.prompt for t in store.turns(chat.id)] == ["Why?", "from elsewhere", "ours"]


def test_chats_come_most_recently_active_first_and_reading_or_renaming_is_no_activity(store: Store) -> None:
    old, middle, new = (store.create_chat(title=title, model="m").id for title in ("old", "middle", "new"))
    time.sleep(0.002)
    turn = begin(store, old)
    assert [chat.id for chat in store.chats()] == [old, new, middle]
    time.sleep(0.002)
    begin(store, middle)
    time.sleep(0.002)
    store.rename_chat(new, "newest")
    store.flush_turn(turn.id, reply="a", reply_ids=[1])
    assert [chat.id for chat in store.chats()] == [middle, old, new]
    end(store, turn.id)
    assert [chat.id for chat in store.chats(limit=2)] == [old, middle]
    assert store.last_chat().id == old
    assert store.chat(new).title == "newest"


def test_a_clock_that_was_set_back_moves_no_chat_down(
    store: Store, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo_data.store.now_ms", lambda: 1000)
    begin(store, chat.id)
    assert store.chat(chat.id).updated_at == chat.updated_at


def test_the_last_of_no_chats_is_an_error_that_says_how_to_begin(store: Store) -> None:
    with pytest.raises(NoChatsError) as caught:
        store.last_chat()
    assert (caught.value.message, caught.value.remedy) == (
        "there is no chat yet",
        'Begin one with: octavo "your question".',
    )
    assert str(caught.value) == 'there is no chat yet. Begin one with: octavo "your question".'


def test_a_chat_is_found_by_id_and_by_unique_prefix_in_any_case(store: Store) -> None:
    one, two = store.create_chat(title="1", model="m"), store.create_chat(title="2", model="m")
    shared = next(n for n in range(26) if one.id[n] != two.id[n])
    assert store.chat(two.id) == two
    assert store.chat(f" {one.id[: shared + 1].upper()} ") == one
    with pytest.raises(AmbiguousChatError, match=f"{one.id}, {two.id}\\. Give more"):
        store.chat(one.id[:shared])


@pytest.mark.parametrize("prefix", ["", "  ", "zzz", "%", "*", "0%", "~", "'; DROP TABLE chats; --", "\0", "é"])
def test_what_begins_no_id_is_not_found(store: Store, chat: Chat, prefix: str) -> None:
    with pytest.raises(ChatNotFoundError):
        store.chat(prefix)
    assert store.chats() == [chat]


def test_unknown_ids_are_named(store: Store, chat: Chat) -> None:
    of_chats: list[Callable[[], object]] = [
        lambda: store.chat("nobody"),
        lambda: store.turns("nobody"),
        lambda: store.rename_chat("nobody", "x"),
        lambda: begin(store, "nobody"),
    ]
    of_turns: list[Callable[[], object]] = [
        lambda: store.turn("nothing"),
        lambda: store.token_ids("nothing"),
        lambda: store.flush_turn("nothing", reply="", reply_ids=[]),
        lambda: end(store, "nothing"),
        lambda: store.begin_turn(chat.id, prompt="", host="h", kept_tokens=0, prompt_ids=[], parent_id="nothing"),
    ]
    for call in of_chats:
        with pytest.raises(ChatNotFoundError, match="no chat 'nobody'"):
            call()
    for call in of_turns:
        with pytest.raises(TurnNotFoundError, match="no turn 'nothing'"):
            call()
    assert store.turns(chat.id) == []


def test_the_turns_of_a_dead_host_are_interrupted_with_their_text_and_others_go_on(store: Store, chat: Chat) -> None:
    dead, done = begin(store, chat.id, host="dead"), begin(store, chat.id, host="dead")
    alive = begin(store, chat.id, host="alive")
    store.flush_turn(dead.id, reply="Half a sen", reply_ids=[4])
    end(store, done.id)
    assert store.running_hosts() == {"dead", "alive"}
    assert store.interrupt_turns("dead") == 1
    assert store.interrupt_turns("dead") == 0
    assert store.running_hosts() == {"alive"}
    turn = store.turn(dead.id)
    assert (turn.status, turn.stop_reason, turn.reply) == ("interrupted", "interrupted", "Half a sen")
    assert [store.turn(t.id).status for t in (done, alive)] == ["done", "running"]


def test_the_data_version_changes_when_somebody_else_writes_and_not_by_our_own_writes(store: Store, chat: Chat) -> None:
    before = store.data_version()
    store.rename_chat(chat.id, "ours")
    assert store.data_version() == before
    with Store(store.path) as other:
        other.rename_chat(chat.id, "theirs")
    assert store.data_version() != before
    assert store.chat(chat.id).title == "theirs"


def test_impossible_measurements_are_refused_by_the_schema(store: Store, chat: Chat) -> None:
    turn = begin(store, chat.id)
    counts = TurnCounts(cached_tokens=-1)
    with pytest.raises(sqlite3.IntegrityError):
        store.end_turn(
            turn.id, status=TurnStatus.DONE, stop_reason="", reply="", reply_ids=[], counts=counts, timings=TIMINGS
        )
    assert store.turn(turn.id).status is TurnStatus.RUNNING
    end(store, turn.id)


def test_another_thread_cannot_use_the_instance(store: Store) -> None:
    errors: list[Exception] = []

    def read() -> None:
        try:
            store.chats()
        except sqlite3.ProgrammingError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(errors) == 1


def begin_chat(store: Store, title: str, parent_id: str | None) -> None:
    with store.writing():
        chat = store.create_chat(title=title, model="m")
        store.begin_turn(chat.id, prompt="?", host="h", kept_tokens=0, prompt_ids=[], parent_id=parent_id)


def test_writes_that_are_made_as_one_are_all_there_or_none(store: Store) -> None:
    begin_chat(store, "whole", None)
    with pytest.raises(TurnNotFoundError):
        begin_chat(store, "half", "nosuchturn")
    assert [(chat.title, chat.num_turns) for chat in store.chats()] == [("whole", 1)]
