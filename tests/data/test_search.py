"""Laws of the search: every word of a stored turn finds it, nothing typed is an error, the newest come first."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from octavo_data import Chat, Place, Store, TurnCounts, TurnStatus, TurnTimings
from octavo_data.encoding import clean_text
from octavo_data.migrations import UNSPACED
from octavo_data.search import Hit, _query, is_indexed, search
from octavo_data.signs import signs_of
from octavo_data.upkeep import check

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=60)
WORDS = st.lists(
    st.sampled_from(["AND", "OR", "NOT", "NEAR(", '"', "*", "-", "^", ":", "prompt:", "{", "(", ")", "+", "'", ";"])
    | st.text(min_size=1, max_size=8),
    max_size=6,
).map(" ".join)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("search") / "octavo.db") as store:
        yield store


def said(store: Store, chat_id: str, prompt: str, reply: str = "") -> str:
    turn = store.begin_turn(chat_id, prompt=prompt, host="h", kept_tokens=0, prompt_ids=[], parent_id=Place.TIP)
    store.end_turn(
        turn.id,
        status=TurnStatus.DONE,
        stop_reason="stop",
        reply=reply,
        reply_ids=[],
        counts=TurnCounts(),
        timings=TurnTimings(),
    )
    return turn.id


def marked(hit: Hit) -> list[str]:
    return [hit.snippet[begin:end] for begin, end in hit.spans]


@settings(max_examples=300)
@given(prompt=ANY_TEXT, reply=ANY_TEXT)
@example(prompt="a\0b", reply="")
@example(prompt='"quoted" AND NOT', reply="c++ ::  🙂")
@example(prompt="GPU显存不足", reply="ภาษาไทย")
@example(prompt="\ud800x", reply="\u0301")
def test_every_word_of_a_turn_finds_it(shared: Store, prompt: str, reply: str) -> None:
    # SQLite's functions end at a NUL, so what is behind one is indexed, but not spaced
    assume(not ("\0" in prompt + reply and re.search(f"[{UNSPACED}]", prompt + reply)))
    chat = shared.create_chat(title="t", model="m")
    turn_id = said(shared, chat.id, prompt, reply)
    for text in (prompt, reply):
        words = clean_text(text).replace("\0", " ").split()
        assert all(turn_id in {hit.turn_id for hit in search(shared, word, 10_000)} for word in words)
        if words:
            assert turn_id in {hit.turn_id for hit in search(shared, text, 10_000)}


@settings(max_examples=200)
@given(words=WORDS | ANY_TEXT)
def test_whatever_is_typed_is_no_error(shared: Store, words: str) -> None:
    for hit in search(shared, words):
        assert all(0 <= begin < end <= len(hit.snippet) for begin, end in hit.spans)


def test_nothing_typed_finds_nothing(store: Store, chat: Chat) -> None:
    said(store, chat.id, "hello")
    assert [search(store, words) for words in ("", "  ", "\0", "\n")] == [[], [], [], []]


def test_all_words_must_be_there_in_any_order_and_the_last_may_be_begun(store: Store, chat: Chat) -> None:
    first = said(store, chat.id, "Why is the Nile long?", "Because it crosses deserts.")
    second = said(store, chat.id, "Is the Amazon longer?", "By volume.")
    found = {
        words: [hit.turn_id for hit in search(store, words)] for words in ("nile des", "the lon", "des nile", "lon the")
    }
    assert found == {"nile des": [first], "the lon": [second, first], "des nile": [], "lon the": []}


def test_case_and_accents_do_not_matter(store: Store, chat: Chat) -> None:
    turn_id = said(store, chat.id, "Où est l'ÉTÉ?", "STRASSE Ωμέγα Москва Tiếng Việt “don’t”")
    for words in ("tiếng việt", "tieng", "don’t", "don't", "ou", "été", "ete", "strasse", "ΩΜΈΓΑ", "москва", "l'été"):
        assert [hit.turn_id for hit in search(store, words)] == [turn_id], words


def test_only_what_has_no_letters_or_too_new_ones_is_read() -> None:
    words = ("don’t", "“quoted”", "Việt", "naïve", "c++", "…done", "अनुभव", "العربية", "x🙂", "川x", "ไทย", "서울")
    assert all(map(is_indexed, words))
    assert not any(map(is_indexed, ("🙂", "::", "—", "\U0001e900")))


def test_scripts_without_spaces_and_signs_are_found_anywhere(store: Store, chat: Chat) -> None:
    turn_id = said(store, chat.id, "今日は最長の川について話す", "std::vector 🙂🙃 ภาษาไทย")
    for words in ("最長の川", "川", "::", "🙃", "ษาไท", "vector 川", "川 vec"):
        assert [hit.turn_id for hit in search(store, words)] == [turn_id], words
    assert search(store, "川 nothing") == []


SIGNED = st.text(st.sampled_from("aé川=>:.!“”…☃👍🏽⚕️Ⓐⓐ。「」̸ \0\U0001fae0\U0001e900\u200d"), max_size=8)


@settings(max_examples=200)
@given(texts=st.lists(SIGNED, min_size=1, max_size=4), words=st.lists(SIGNED, min_size=1, max_size=2))
@example(texts=["a=>b", "= >"], words=["=>"])
@example(texts=["👩\u200d⚕️", "Ⓐ"], words=["⚕️", "Ⓐ"])
@example(texts=["「川」。", "x\0…=>"], words=["…="])
def test_words_without_letters_are_found_wherever_they_stand(shared: Store, texts: list[str], words: list[str]) -> None:
    chat = shared.create_chat(title="t", model="m")
    turns = {said(shared, chat.id, text, "a\nb"): clean_text(text) for text in texts}
    parts = [part for part in " ".join(words).replace("\0", " ").split() if not is_indexed(part)]
    assume(parts)
    expected = {turn_id for turn_id, text in turns.items() if all(part in text for part in parts)}
    for asked in (parts, [*parts, "b"]):
        found = {hit.turn_id for hit in search(shared, " ".join(asked), 10_000)}
        assert found & turns.keys() == expected


def test_much_that_is_pasted_is_looked_for(store: Store, chat: Chat) -> None:
    """SQLite takes no expression of a thousand parts."""
    code = "\n".join(f"x{number} = {{ {number} }} ;" for number in range(1_500))
    turn_id = said(store, chat.id, code)
    assert [hit.turn_id for hit in search(store, code)] == [turn_id]


@pytest.mark.parametrize("word", ["=>", "☃", "🫠"])
def test_a_turn_without_a_sign_is_not_read(store: Store, chat: Chat, word: str) -> None:
    """The index says so: in what SQLite runs, nothing looks for signs in a text but the two that look for the word."""
    said(store, chat.id, "Plain words, nothing else…")
    assert signs_of(word) & signs_of("Plain words, nothing else…") == 0
    for words in ([word], ["plain", word]):
        sql, values = _query(words)
        with store.reading() as conn:
            steps = conn.execute("EXPLAIN " + sql, (*values, 20)).fetchall()
        assert sum("instr" in str(step[5]) for step in steps) == 2


def test_the_newest_come_first_and_no_more_than_asked_for(
    store: Store, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [3_000_000, 1_000_000, 2_000_000]
    ids = []
    for time_ms in times:
        monkeypatch.setattr("octavo_data.store.now_ms", lambda time_ms=time_ms: time_ms)
        ids.append(said(store, chat.id, "the same"))
    assert [hit.turn_id for hit in search(store, "same")] == [ids[0], ids[2], ids[1]]
    assert [hit.turn_id for hit in search(store, "same", 2)] == [ids[0], ids[2]]


def test_a_hit_says_where_and_when_and_shows_the_words(store: Store, chat: Chat) -> None:
    filler = "word " * 100
    turn_id = said(store, chat.id, "Tell me.", f"{filler}the river Rhine flows. {filler}")
    (hit,) = search(store, "RIVER rhi")
    assert (hit.chat_id, hit.title, hit.turn_id) == (chat.id, "Rivers", turn_id)
    assert hit.created_at == store.turn(turn_id).created_at
    assert (marked(hit), len(hit.snippet) < 200) == (["river", "Rhine"], True)
    (read,) = search(store, "flows.") + search(store, "…")
    assert marked(read) == ["flows"]


def test_a_part_of_a_text_without_spaces_is_shown_with_what_is_around_it(store: Store, chat: Chat) -> None:
    said(store, chat.id, "あ" * 100 + "川" + "い" * 100)
    (hit,) = search(store, "川")
    assert (hit.snippet, marked(hit)) == ("…" + "あ" * 40 + "川" + "い" * 79 + "…", ["川"])


def test_a_running_turn_is_found_when_it_is_over(store: Store, chat: Chat) -> None:
    turn = store.begin_turn(chat.id, prompt="Begin", host="h", kept_tokens=0, prompt_ids=[])
    store.flush_turn(turn.id, reply="half", reply_ids=[])
    assert (search(store, "begin"), search(store, "half")) == ([], [])
    store.interrupt_turns("h")
    assert [hit.turn_id for hit in search(store, "begin half")] == [turn.id]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), ANY_TEXT, ANY_TEXT), max_size=8))
def test_the_index_is_true_after_any_edits_and_deletions(shared: Store, steps: list[tuple[int, str, str]]) -> None:
    chat = shared.create_chat(title="t", model="m")
    ids: list[str] = []
    for kind, prompt, reply in steps:
        if kind < 2 or not ids:
            ids.append(said(shared, chat.id, prompt, reply))
        elif kind == 2:
            with shared.writing() as conn:
                values = (clean_text(prompt), clean_text(reply), ids[-1])
                conn.execute("UPDATE turns SET prompt = ?, reply = ? WHERE id = ?", values)
        else:
            with shared.writing() as conn:
                conn.execute(
                    "UPDATE chats SET tip_id = (SELECT parent_id FROM turns WHERE id = ?) WHERE id = ?",
                    (ids[-1], chat.id),
                )
                conn.execute("DELETE FROM turns WHERE id = ?", (ids.pop(),))
    assert check(shared) == []
