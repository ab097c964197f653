"""Laws of the exact token ids: what a turn keeps of its parent, and never other ids instead."""

import pytest

from octavo_data import Chat, Store, TokenIdsError


@pytest.mark.parametrize("kept_tokens", [-1, 4])
def test_no_turn_keeps_more_ids_than_its_parent_has(store: Store, chat: Chat, kept_tokens: int) -> None:
    parent = store.begin_turn(chat.id, prompt="p", host="h", kept_tokens=0, prompt_ids=[1, 2, 3])
    with pytest.raises(TokenIdsError, match=f"{kept_tokens} token ids .* of {parent.id}, which has 3"):
        store.begin_turn(chat.id, prompt="x", host="h", kept_tokens=kept_tokens, prompt_ids=[])
    assert store.chat(chat.id).tip_id == parent.id


def test_a_root_keeps_nothing(store: Store, chat: Chat) -> None:
    with pytest.raises(TokenIdsError, match="of nothing, which has 0"):
        store.begin_turn(chat.id, prompt="x", host="h", kept_tokens=1, prompt_ids=[])


def test_ids_that_a_parent_lost_are_an_error_and_never_other_ids(store: Store, chat: Chat) -> None:
    parent = store.begin_turn(chat.id, prompt="p", host="h", kept_tokens=0, prompt_ids=[1, 2, 3])
    store.flush_turn(parent.id, reply="ab", reply_ids=[4, 5])
    child = store.begin_turn(chat.id, prompt="x", host="h", kept_tokens=5, prompt_ids=[6])
    store.flush_turn(parent.id, reply="a", reply_ids=[4])
    with pytest.raises(TokenIdsError, match="5 token ids"):
        store.token_ids(child.id)


def test_ids_before_a_turn_that_keeps_nothing_do_not_count(store: Store, chat: Chat) -> None:
    store.begin_turn(chat.id, prompt="p", host="h", kept_tokens=0, prompt_ids=[1, 2, 3])
    fresh = store.begin_turn(chat.id, prompt="x", host="h", kept_tokens=0, prompt_ids=[2**32 - 1, 0])
    assert store.token_ids(fresh.id) == [4294967295, 0]


def test_an_id_that_is_no_32_bit_number_is_refused_and_changes_nothing(store: Store, chat: Chat) -> None:
    for bad in (-1, 2**32):
        with pytest.raises(OverflowError):
            store.begin_turn(chat.id, prompt="x", host="h", kept_tokens=0, prompt_ids=[bad])
    assert store.turns(chat.id) == []
