"""The law of the text: the deltas joined equal `decode(all ids)`, and nothing is said by halves."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engine import tiny_tokenizers
from tokenizers import Tokenizer

from octavo_engine.detokenizer import MIN_STRETCH, REPLACEMENT, Decode, Detokenizer, find_spoiler
from octavo_engine.echo import EchoFormat

TOKENIZERS = {
    "byte level": tiny_tokenizers.byte_level(),
    "byte fallback": tiny_tokenizers.byte_fallback(),
    "metaspace": tiny_tokenizers.metaspace(),
    "word piece": tiny_tokenizers.word_piece(),
}
SPOILERS = {name: find_spoiler(tokenizer.decode) for name, tokenizer in TOKENIZERS.items()}
SENTENCES = ("Hi there", " the cat's é", "你好 😀", "\n\n", "a.b, \x80")


def deltas(decode: Decode, token_ids: Sequence[int], spoiler: int | None = None, piece: int = 1) -> list[str]:
    detokenizer = Detokenizer(decode, spoiler)
    starts = range(0, len(token_ids), piece)
    return [*(detokenizer.add(token_ids[at : at + piece]) for at in starts), detokenizer.finish()]


def check(decode: Decode, token_ids: Sequence[int], spoiler: int | None, piece: int = 1) -> None:
    said, text = "", decode(list(token_ids))
    for delta in deltas(decode, token_ids, spoiler, piece):
        said += delta
        assert text.startswith(said), "something was taken back"
    assert said == text


def ids(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    vocabulary = tokenizer.get_vocab()
    return [vocabulary[token] for token in tokens]


def any_ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Random ids, and runs of those that make whole text, with every kind of trouble in between."""
    size = tokenizer.get_vocab_size()
    whole = st.sampled_from(SENTENCES).map(lambda text: tokenizer.encode(text, add_special_tokens=False).ids)
    stretches = whole | st.lists(st.integers(0, size - 1), max_size=6) | st.lists(st.integers(0, 2), max_size=3)
    return st.lists(stretches, max_size=8).map(lambda parts: [i for part in parts for i in part])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=400)
@given(data=st.data(), piece=st.sampled_from((1, 1, 1, 2, 5)))
def test_the_deltas_joined_are_the_text_and_nothing_is_taken_back(name: str, data: st.DataObject, piece: int) -> None:
    tokenizer = TOKENIZERS[name]
    check(tokenizer.decode, data.draw(any_ids(tokenizer)), SPOILERS[name], piece)


@given(st.lists(st.integers(0, 259), max_size=40))
@example(list("é你😀".encode()))
@example([0xE4, 0xBD, 0x41, 0xFF, 0xFF, 0xE2, 0x82, 0xAC])
def test_the_law_holds_for_plain_bytes(token_ids: list[int]) -> None:
    check(EchoFormat().decode, token_ids, None)


@pytest.mark.model
def test_the_law_holds_for_the_default_model(model_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    spoiler = find_spoiler(tokenizer.decode)
    assert spoiler is None

    @settings(max_examples=300)
    @given(any_ids(tokenizer))
    def law(token_ids: list[int]) -> None:
        check(tokenizer.decode, token_ids, spoiler)

    law()


def test_a_character_of_several_tokens_is_said_whole() -> None:
    assert deltas(EchoFormat().decode, list("a€b".encode())) == ["a", "", "", "€", "b", ""]


def test_whole_text_before_half_a_character_is_said_at_once() -> None:
    tokenizer = TOKENIZERS["byte level"]
    half = tokenizer.decode(ids(tokenizer, "Ġ", "ä", "½"))
    assert half == " " + REPLACEMENT
    assert deltas(tokenizer.decode, ids(tokenizer, "Hi", "Ġä½", "ł")) == ["Hi", " ", "你", ""]


def test_a_space_is_kept_behind_a_special_token() -> None:
    tokenizer = TOKENIZERS["byte fallback"]
    assert deltas(tokenizer.decode, ids(tokenizer, "▁Hi", "</s>", "▁there")) == ["Hi", "", " there", ""]


def test_bytes_are_said_when_their_run_is_over() -> None:
    name = "byte fallback"
    tokenizer = TOKENIZERS[name]
    run = ids(tokenizer, "▁Hi", "<0x0A>", "<0xE4>", "<0xBD>", "<0xA0>", "▁there")
    assert deltas(tokenizer.decode, run, SPOILERS[name]) == ["Hi", "", "", "", "", "\n你 there", ""]
    spoilt = [*run[:-1], *ids(tokenizer, "<0xFF>")]
    assert deltas(tokenizer.decode, spoilt, SPOILERS[name])[-1] == REPLACEMENT * 5


def test_only_byte_fallback_has_a_spoiler() -> None:
    assert {name for name, spoiler in SPOILERS.items() if spoiler is not None} == {"byte fallback"}


def test_the_window_does_not_grow_with_the_reply() -> None:
    for name, tokenizer in TOKENIZERS.items():
        words = ids(tokenizer, "Hi", "the", "cat", "</s>") * 50
        sizes: list[int] = []
        detokenizer = Detokenizer(counting(tokenizer.decode, sizes), SPOILERS[name])
        for token_id in words:
            detokenizer.add([token_id])
        detokenizer.finish()
        assert max(sizes) <= 2 * MIN_STRETCH + 1
        assert len(sizes) <= 2.5 * len(words)


def test_a_reply_of_special_tokens_alone_costs_no_more_at_its_end() -> None:
    sizes: list[int] = []
    tokenizer = TOKENIZERS["byte level"]
    assert "".join(deltas(counting(tokenizer.decode, sizes), [1] * 500)) == ""
    assert max(sizes) <= 2 * MIN_STRETCH


def counting(decode: Decode, sizes: list[int]) -> Decode:
    """The same, noting how many ids each call decodes."""

    def decode_and_count(token_ids: Sequence[int]) -> str:
        sizes.append(len(token_ids))
        return decode(token_ids)

    return decode_and_count
