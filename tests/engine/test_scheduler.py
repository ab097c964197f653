"""What a step computes, and for whom; ids count on, so a prompt that ends in 7 is answered 8, 9, 10."""

import pytest
from tests.engine.memory_stage import Stage, prompt, rows

from octavo_engine.errors import RequestRefusedError
from octavo_engine.params import SamplingParams
from octavo_engine.prefix_index import Match
from octavo_engine.sequence import Sequence

PREFIX = list(range(1000, 2024))


@pytest.mark.parametrize(("length", "is_refused"), [(31, False), (32, True), (1024, True)])
def test_a_prompt_that_can_never_fit_the_pool_is_refused_with_the_sizes(length: int, is_refused: bool) -> None:
    stage = Stage(num_blocks=8, block_size=4, max_model_len=1024)
    if is_refused:
        with pytest.raises(RequestRefusedError, match=rf"{length} tokens.* holds 1024 and the KV pool 32"):
            stage.add("a", prompt(100, length))
    else:
        stage.add("a", prompt(100, length))
    assert stage.engine.has_work is not is_refused


def test_a_prompt_that_fills_the_context_is_refused_and_leaves_nothing() -> None:
    stage = Stage(num_blocks=64, max_model_len=20)
    with pytest.raises(RequestRefusedError, match=r"20 tokens.* holds 20 and the KV pool 256"):
        stage.add("a", prompt(100, 20))
    with pytest.raises(RequestRefusedError, match="empty"):
        stage.add("a", [])
    assert (stage.engine.has_work, stage.engine.counts().waiting) == (False, 0)
    stage.engine.check_integrity()


def test_decoding_rows_come_first_and_a_long_paste_does_not_stall_them() -> None:
    stage = Stage(num_blocks=300, max_num_batched_tokens=16)
    stage.add("chat", [1], 40)
    stage.step()
    stage.add("paste", prompt(1000, 300), 1)
    for _ in range(20):
        stage.step()
        assert rows(stage) == {"chat": 1, "paste": 15}


def test_a_short_prompt_need_not_wait_for_a_long_one() -> None:
    stage = Stage(num_blocks=300, max_num_batched_tokens=16)
    stage.add("paste", prompt(1000, 300), 1)
    stage.step()
    stage.add("short", [1, 2, 3], 1)
    stage.step()
    assert rows(stage) == {"short": 3, "paste": 13}
    stage.step()
    assert stage.reason("short") == "length"


@pytest.mark.parametrize("budget", [8, 9, 33])
def test_the_token_budget_is_filled_and_never_exceeded(budget: int) -> None:
    stage = Stage(num_blocks=300, max_num_batched_tokens=budget)
    for number in range(12):
        stage.add(str(number), prompt(100 * number + 1, 40), 3)
    stage.run()
    used = [sum(step.query_lens) for step in stage.runner.steps]
    assert max(used) == budget
    assert used[:10] == [budget] * 10


def test_no_prompt_starts_in_a_step_that_has_no_token_for_it() -> None:
    stage = Stage(num_blocks=300, max_num_seqs=4, max_num_batched_tokens=4)
    for number in range(4):
        stage.add(str(number), prompt(100 * number + 1, 2), 20)
    while stage.engine.has_work:
        stage.step()
        assert all(s.num_computed or s.request_id in rows(stage) for s in stage.scheduler.running)


def test_a_failed_step_takes_every_request_whose_copy_it_should_have_made() -> None:
    stage = Stage(num_blocks=64, block_size=16, max_num_seqs=4, max_num_batched_tokens=4)
    stage.add("first", prompt(1, 12), 1)
    stage.run()
    stage.add("decoding", [900], 30)
    stage.step()
    for number in range(3):
        stage.add(str(number), [*prompt(1, 11 - number), *prompt(500 + 10 * number, 10)], 1)
    stage.runner.fails = "before"
    stage.step()
    assert stage.runner.steps[-1].copies
    stage.run()
    assert [stage.reason(str(number)) for number in range(3)] == ["failed"] * 3
    stage.add("again", [*prompt(1, 11), *prompt(500, 10)], 1)
    stage.run()
    assert stage.usage("again") == (11, 10)


def test_several_steps_at_once_say_what_single_ones_say() -> None:
    stage = Stage(num_decode_steps=4)
    for name, start, length in (("a", 10, 11), ("b", 50, 6)):
        stage.add(name, prompt(start, 5), length)
    stage.run()
    assert [stage.outcomes[name].token_ids for name in "ab"] == [prompt(15, 11), prompt(55, 6)]
    assert len(stage.runner.steps) < 11


def test_a_prompt_in_pieces_of_one_token_is_not_taken_for_a_reply() -> None:
    stage = Stage(num_decode_steps=4, max_num_seqs=1, max_num_batched_tokens=1)
    stage.add("a", prompt(1, 9), 6)
    stage.run()
    assert stage.outcomes["a"].token_ids == prompt(10, 6)


def test_what_a_step_says_behind_the_end_of_a_reply_is_dropped() -> None:
    stage = Stage(num_decode_steps=4)
    stage.engine.add("a", [1], SamplingParams(stop=("d",), max_tokens=20))
    stage.engine.add("b", [10], SamplingParams(max_tokens=20))
    stage.run()
    assert (stage.outcomes["a"].token_ids, stage.outcomes["a"].text) == ([2, 3, 4], "bc")
    assert stage.outcomes["b"].token_ids == prompt(11, 20)
    stage.add("again", prompt(1, 9), 1)
    stage.run()
    assert stage.usage("again") == (6, 3)  # what was computed behind it is true of its tokens, and stays


def test_a_hundred_requests_with_one_prefix_compute_it_once() -> None:
    stage = Stage(num_blocks=200, block_size=16, max_num_seqs=64, max_num_batched_tokens=512, max_model_len=2048)
    for number in range(100):
        stage.add(str(number), [*PREFIX, 1 + number], 2, session=str(number))
    stage.run()
    assert sum(stage.usage(str(number))[1] for number in range(100)) <= 1024 + 100 + 1


def test_a_prefix_shorter_than_a_block_is_computed_once_though_asked_at_the_same_moment() -> None:
    stage = Stage(num_blocks=200, block_size=256, max_num_batched_tokens=64)
    for number in range(10):
        stage.add(str(number), [*PREFIX[:200], 1 + number, 2 + number], 2)
    stage.run()
    assert stage.usage("0") == (0, 202)
    assert [stage.usage(str(number)) for number in range(1, 10)] == [(200, 2)] * 9


def test_without_prefix_caching_nobody_waits_for_a_prefix_that_will_not_be_shared() -> None:
    stage = Stage(enable_prefix_caching=False)
    stage.add("a", [*PREFIX[:20], 1], 1)
    stage.add("b", [*PREFIX[:20], 2], 1)
    stage.step()
    assert rows(stage) == {"a": 21, "b": 21}


def test_a_request_that_found_too_few_blocks_is_matched_again_when_some_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(num_blocks=8)
    stage.add("a", prompt(1, 15), 8)
    stage.step()
    matched: list[str] = []
    match = stage.manager.match

    def match_and_tell(sequence: Sequence) -> Match:
        matched.append(sequence.request_id)
        return match(sequence)

    monkeypatch.setattr(stage.manager, "match", match_and_tell)
    stage.add("b", prompt(100, 25), 2)
    for _ in range(6):
        stage.step()
    assert matched == ["b"]
    stage.run()
    assert stage.outcomes["b"].token_ids == [125, 126]


def test_identical_tokens_computed_at_once_end_on_the_same_full_blocks() -> None:
    stage = Stage()
    for name in ("a", "b"):
        stage.add(name, [1], 12)
    for _ in range(11):  # ten ids are known, the eleventh is in flight
        stage.step()
    a, b = stage.scheduler.running
    assert a.token_ids == b.token_ids == prompt(1, 11)
    assert a.block_table[:2] == b.block_table[:2]
    assert a.block_table[2] != b.block_table[2]


@pytest.mark.parametrize("length", [2, 40])
def test_n_replies_come_from_one_prefill(length: int) -> None:
    stage = Stage(num_blocks=64, block_size=16)
    stage.engine.add("a", prompt(1, length), SamplingParams(n=4, max_tokens=2))
    stage.run()
    assert [stage.usage(name) for name in ("a", "a#1", "a#2", "a#3")] == [(0, length), *[(length - 1, 1)] * 3]
    assert stage.outcomes["a#3"].token_ids == [length + 1, length + 2]


def test_a_fork_and_its_parent_go_on_to_full_blocks_of_their_own() -> None:
    stage = Stage(next_id=lambda ids, seed: ids[-1] + 1 + seed)
    stage.engine.add("a", prompt(1, 7), SamplingParams(seed=0, max_tokens=12))
    for _ in range(3):
        stage.step()
    stage.engine.fork("a", "b", SamplingParams(seed=9, max_tokens=12))
    a, b = stage.scheduler.running
    assert (a.digests, len(a.digests)) == (b.digests, 2)
    for _ in range(5):
        stage.step()
    assert (len(a.digests), len(b.digests)) == (3, 3)
    assert a.digests[:2] == b.digests[:2]
    assert a.digests[2] != b.digests[2]
    stage.run()
    for name, request in (("a", a.token_ids), ("b", b.token_ids)):
        stage.engine.add(f"{name} again", request, SamplingParams(max_tokens=1))
    stage.run()
    assert [stage.usage(f"{name} again")[1] for name in "ab"] == [1, 1]


def test_a_running_fork_shares_full_blocks_and_copies_one_partial_block() -> None:
    stage = Stage()
    stage.add("a", prompt(1, 9), 8)
    for _ in range(3):  # two ids are known, the third is in flight
        stage.step()
    stage.engine.fork("a", "b")
    a, b = stage.scheduler.running
    assert a.block_table == b.block_table == [0, 1, 2]
    stage.step()
    assert stage.runner.steps[-1].copies == ((2, 3),)
    assert (a.block_table, b.block_table) == ([0, 1, 3], [0, 1, 2])
    stage.run()
    assert sum(len(step.copies) for step in stage.runner.steps) == 1
    assert stage.outcomes["b"].token_ids == prompt(12, 8)
    assert stage.usage("b") == (10, 1)
