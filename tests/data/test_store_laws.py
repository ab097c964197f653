"""Laws of the store over any tree of turns and any text."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo_data import Place, Store
from octavo_data.encoding import clean_text, pack_ids, unpack_ids

TOKEN_ID = st.integers(0, 2**32 - 1)
IDS = st.lists(TOKEN_ID, max_size=8)
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)  # lone surrogates and NUL too


class Plan(NamedTuple):
    """One turn to make: under which earlier one (None: the tip), how much of its ids it keeps, what it adds."""

    under: float | None
    keeps: float
    prompt_ids: list[int]
    reply_ids: list[int]


FRACTION = st.floats(0, 1, exclude_max=True)
PLANS = st.lists(st.builds(Plan, st.none() | FRACTION, FRACTION | st.just(1.0), IDS, IDS), max_size=12)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws") / "octavo.db"


@settings(max_examples=60)
@given(plans=PLANS)
def test_ids_and_path_of_every_turn_of_any_tree_come_back_exactly(shared: Path, plans: list[Plan]) -> None:
    with Store(shared) as store:
        chat = store.create_chat(title="t", model="m")
        ids: dict[str | None, list[int]] = {None: []}
        paths: dict[str | None, list[str]] = {None: []}
        tip: str | None = None
        for plan in plans:
            parent = tip if plan.under is None else list(ids)[int(plan.under * len(ids))]
            kept = int(plan.keeps * len(ids[parent]))
            tip = store.begin_turn(
                chat.id,
                prompt="p",
                host="h",
                kept_tokens=kept,
                prompt_ids=plan.prompt_ids,
                parent_id=Place.TIP if plan.under is None else parent,
            ).id
            store.flush_turn(tip, reply="r", reply_ids=plan.reply_ids)
            ids[tip] = ids[parent][:kept] + plan.prompt_ids + plan.reply_ids
            paths[tip] = [*paths[parent], tip]
        assert [turn.id for turn in store.turns(chat.id)] == paths[tip]
        assert store.chat(chat.id).num_turns == len(paths[tip])
        assert {turn: store.token_ids(turn) for turn in ids if turn} == {turn: ids[turn] for turn in ids if turn}


@given(IDS)
def test_packed_ids_take_four_bytes_each_and_come_back(token_ids: list[int]) -> None:
    assert len(pack_ids(token_ids)) == 4 * len(token_ids)
    assert unpack_ids(pack_ids(token_ids)) == token_ids


def test_packed_ids_are_little_endian_on_every_machine() -> None:
    assert pack_ids([1, 0x01020304]).hex(" ", 4) == "01000000 04030201"


@given(ANY_TEXT)
@example("\ud83d\ude00")
@example("a\udcffb")
def test_clean_text_is_always_text_and_changes_none_that_is(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode()
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


def test_a_lone_surrogate_becomes_a_replacement_character_and_a_pair_its_character() -> None:
    assert clean_text("a\udcffb") == "a\ufffdb"
    assert clean_text("\ud83d\ude00") == "😀"


@settings(max_examples=60)
@given(title=ANY_TEXT, system=ANY_TEXT, prompt=ANY_TEXT, reply=ANY_TEXT)
@example(title="\0", system="a\0b", prompt="\0\0", reply="end\0")
def test_any_text_comes_back_as_it_was(shared: Path, title: str, system: str, prompt: str, reply: str) -> None:
    with Store(shared) as store:
        chat = store.create_chat(title=title, model="m", system=system)
        turn = store.begin_turn(chat.id, prompt=prompt, host="h", kept_tokens=0, prompt_ids=[])
        store.flush_turn(turn.id, reply=reply, reply_ids=[])
        (stored,) = store.turns(chat.id)
        assert (chat.title, chat.system) == (clean_text(title), clean_text(system))
        assert (stored.prompt, stored.reply) == (clean_text(prompt), clean_text(reply))
