"""What a caller of the engine sees; ids count on, so a prompt that ends in 7 is answered 8, 9, 10 ("h", "i", "j")."""

from collections.abc import Sequence as SequenceOf

import pytest
from tests.engine.memory_runner import END_ID
from tests.engine.memory_stage import Stage, prompt, spell

from octavo_engine.errors import ParameterError
from octavo_engine.events import Delta, Finished, Preempted, Started, StopReason
from octavo_engine.params import SamplingParams


def ends_at(last: int) -> Stage:
    """A stage whose model says its end token after an id."""
    return Stage(next_id=lambda ids, seed: END_ID if ids[-1] == last else ids[-1] + 1)


def test_a_request_is_started_said_and_finished() -> None:
    stage = Stage()
    stage.add("a", [5, 6, 7], 2)
    stage.run()
    started, first, second, finished = stage.events
    assert started == Started("a", 0)
    assert (first, second) == (Delta("a", "h", (8,)), Delta("a", "i", (9,)))
    assert isinstance(finished, Finished)
    assert finished.stop_reason is StopReason.LENGTH
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (3, 2)
    assert 0 <= finished.timings.queue_ms <= finished.timings.first_token_ms <= finished.timings.total_ms


def test_max_model_len_ends_a_reply_with_length() -> None:
    stage = Stage(max_model_len=10)
    stage.add("a", prompt(1, 7), None)
    stage.run()
    assert (stage.outcomes["a"].token_ids, stage.reason("a")) == ([8, 9, 10], "length")


def test_a_lone_sequence_that_fills_the_pool_ends_with_kv_full() -> None:
    stage = Stage(num_blocks=3)
    stage.add("a", prompt(1, 7), None)
    stage.run()
    assert (stage.outcomes["a"].token_ids, stage.reason("a")) == (prompt(8, 6), "kv_full")
    assert stage.engine.counts().used == 0


def test_pins_give_way_before_a_lone_sequence_ends_with_kv_full() -> None:
    stage = Stage(num_blocks=4, max_pinned_share=0.5)
    stage.add("system", prompt(50, 8), 1)
    stage.run()
    assert stage.engine.pin("system", prompt(50, 8)) == 8
    stage.add("a", prompt(1, 7), None)
    stage.run()
    assert (len(stage.outcomes["a"].token_ids), stage.reason("a")) == (4 * 4 + 1 - 7, "kv_full")
    assert stage.engine.counts().pinned == 0


def test_pins_give_way_before_a_prompt_waits_for_ever() -> None:
    stage = Stage(num_blocks=4, max_pinned_share=0.5)
    stage.add("system", prompt(50, 8), 1)
    stage.run()
    stage.engine.pin("system", prompt(50, 8))
    stage.add("a", prompt(1, 14), 1)
    stage.run()
    assert stage.outcomes["a"].token_ids == [15]


def test_the_next_turn_computes_only_its_new_fragment() -> None:
    stage = Stage()
    stage.add("turn 1", prompt(1, 10), 9)
    stage.run()
    conversation = [*prompt(1, 10), *stage.outcomes["turn 1"].token_ids]
    stage.add("turn 2", [*conversation, 500, 501, 502], 1)
    stage.run()
    assert len(conversation) == 19
    assert stage.usage("turn 2") == (18, 4)  # the last sampled id of a turn was never computed


def test_a_retry_computes_one_token_and_an_edit_only_what_it_changes() -> None:
    stage = Stage()
    system, question, answer = prompt(1, 10), prompt(20, 6), prompt(26, 5)
    stage.add("turn", [*system, *question], 5)
    stage.run()
    stage.add("next turn", [*system, *question, *answer, 500, 501], 3)
    stage.run()
    stage.add("retry", [*system, *question, *answer, 500, 501], 3)
    stage.add("edit", [*system, 20, 21, 22, 600, 601, 602], 3)
    stage.run()
    assert stage.usage("next turn") == (20, 3)  # the last id of a reply was never computed
    assert (stage.usage("retry"), stage.usage("edit")) == ((22, 1), (13, 3))


def test_a_full_hit_computes_exactly_one_token() -> None:
    stage = Stage()
    stage.add("cold", prompt(1, 8), 2)
    stage.run()
    stage.add("warm", prompt(1, 8), 2)
    stage.run()
    assert (stage.usage("cold"), stage.usage("warm")) == ((0, 8), (7, 1))
    assert stage.outcomes["warm"].token_ids == stage.outcomes["cold"].token_ids == [9, 10]


def test_a_preempted_request_keeps_its_tokens_and_says_the_same() -> None:
    stage = Stage(num_blocks=5)
    for name, start in (("old", 1), ("new", 50)):
        stage.add(name, prompt(start, 6), 10)
    stage.run()
    assert [event for event in stage.events if isinstance(event, Preempted)] == [Preempted("new")]
    assert [e for e in stage.events if isinstance(e, Started)] == [Started("old", 0), Started("new", 0)]
    assert stage.outcomes["old"].token_ids == prompt(7, 10)
    assert stage.outcomes["new"].token_ids == prompt(56, 10)


@pytest.mark.parametrize("stage_of_life", ["waiting", "prefill", "decode", "preempted"])
def test_an_abort_releases_once_and_is_idempotent(stage_of_life: str) -> None:
    stage = Stage(num_blocks=5, max_num_batched_tokens=8)
    if stage_of_life == "preempted":
        stage.add("other", prompt(50, 6), 14)
        stage.step()
    stage.add("a", prompt(1, 12 if stage_of_life == "prefill" else 6), 12)
    while stage_of_life == "preempted" and Preempted("a") not in stage.events:
        stage.step()
    for _ in range({"prefill": 1, "decode": 3}.get(stage_of_life, 0)):
        stage.step()
    for _ in range(2):
        stage.engine.abort("a")
    assert stage.reason("a") == "", "an abort only marks"
    stage.step()
    assert stage.reason("a") == "aborted"
    stage.engine.abort("a")
    stage.engine.abort("never heard of")
    stage.run()
    assert (stage.engine.counts().used, stage.engine.has_work) == (0, False)


def test_what_an_aborted_request_computed_is_found_again() -> None:
    stage = Stage(max_num_batched_tokens=8)
    stage.add("a", prompt(1, 20), 5)
    stage.step()
    stage.engine.abort("a")
    stage.step()
    stage.add("again", prompt(1, 20), 1)
    stage.run()
    assert stage.usage("again") == (8, 12)


@pytest.mark.parametrize("how", ["before", "halfway"])
def test_after_a_failed_step_nothing_wrong_is_found(how: str) -> None:
    stage = Stage()
    stage.add("first", prompt(1, 10), 1)
    stage.run()
    stage.add("fails", [*prompt(1, 10), 70, 71, 72, 73], 1)
    stage.runner.fails = how
    stage.run()
    assert stage.runner.steps[-1].copies == ()  # the tail was taken over in place; its first slots stay right
    finished = stage.outcomes["fails"].finished
    assert finished is not None
    assert (finished.stop_reason, finished.error) == (
        StopReason.FAILED,
        "RuntimeError('this step was told to fail')",
    )
    stage.add("again", [*prompt(1, 10), 70, 71, 72, 73], 2)
    stage.run()
    assert stage.outcomes["again"].token_ids == [74, 75]


@pytest.mark.parametrize("how", ["before", "halfway"])
def test_a_failed_step_leaves_no_copy_that_was_not_made(how: str) -> None:
    stage = Stage()
    stage.add("first", prompt(1, 12), 1)
    stage.run()
    request = [*prompt(1, 10), 70, 71, 72]
    stage.add("fails", request, 1)
    stage.runner.fails = how
    stage.step()
    assert len(stage.runner.steps[-1].copies) == 1
    stage.add("again", request, 2)
    stage.run()
    assert stage.outcomes["again"].token_ids == [73, 74]


def test_a_failed_step_takes_only_its_own_rows_along() -> None:
    stage = Stage(max_num_seqs=1)
    stage.add("a", [1], 2)
    stage.add("b", [7], 2)
    stage.runner.fails = "before"
    stage.run()
    assert (stage.reason("a"), stage.outcomes["b"].token_ids) == ("failed", [8, 9])


def test_the_end_token_ends_a_reply_unless_it_is_to_be_ignored() -> None:
    stage = ends_at(9)
    stage.engine.add("ends", [7], SamplingParams(max_tokens=5))
    stage.engine.add("goes on", [8], SamplingParams(max_tokens=5, ignore_eos=True))
    stage.run()
    assert (stage.outcomes["ends"].token_ids, stage.reason("ends")) == ([8, 9, END_ID], "stop")
    assert (stage.outcomes["ends"].text, stage.outcomes["goes on"].text) == ("hi", "iabc")


def test_a_stop_id_ends_a_reply() -> None:
    stage = Stage()
    stage.engine.add("a", [1], SamplingParams(stop_token_ids=(4,), ignore_eos=True))
    stage.run()
    assert (stage.outcomes["a"].token_ids, stage.reason("a")) == ([2, 3, 4], "stop")
    assert stage.outcomes["a"].text == "bc"


def test_a_stop_string_ends_a_reply_and_is_cut_off() -> None:
    stage = Stage()
    stage.engine.add("a", [1], SamplingParams(stop=("de",)))
    stage.run()
    outcome = stage.outcomes["a"]
    assert (outcome.text, outcome.token_ids, stage.reason("a")) == ("bc", [2, 3, 4, 5], "stop")


def test_nothing_ends_a_reply_before_min_tokens() -> None:
    stage = ends_at(6)
    params = SamplingParams(stop=("c", "bcd"), stop_token_ids=(3,), min_tokens=4, max_tokens=8)
    stage.engine.add("a", [1], params)
    stage.run()
    assert (stage.outcomes["a"].token_ids, stage.outcomes["a"].text) == ([2, 3, 4, 5, 6, END_ID], "bcdef")


def test_text_held_for_a_stop_string_comes_out_at_the_end() -> None:
    stage = Stage()
    stage.engine.add("a", [1], SamplingParams(stop=("bcdx",), max_tokens=3))
    stage.run()
    assert (stage.outcomes["a"].text, stage.reason("a")) == ("bcd", "length")
    assert [e.text for e in stage.events if isinstance(e, Delta)] == ["", "", "", "bcd"]


def test_a_fork_goes_on_from_all_tokens_so_far() -> None:
    stage = Stage(next_id=lambda ids, seed: ids[-1] + 1 + seed)
    stage.engine.add("a", [10], SamplingParams(seed=0, max_tokens=4))
    for _ in range(3):  # two ids are known, the third is in flight
        stage.step()
    stage.engine.fork("a", "b", SamplingParams(seed=9, max_tokens=2))
    stage.run()
    assert stage.outcomes["a"].token_ids == [11, 12, 13, 14]
    assert stage.outcomes["b"].token_ids == [22, 32]


def test_a_fork_of_a_waiting_request_waits_too() -> None:
    stage = Stage(max_num_seqs=1)
    stage.add("a", [1], 2)
    stage.engine.fork("a", "b")
    stage.run()
    assert stage.outcomes["a"].token_ids == stage.outcomes["b"].token_ids == [2, 3]


def test_equal_seeds_are_equal_and_n_replies_have_their_own() -> None:
    seen: list[int] = []
    stage = Stage(next_id=lambda ids, seed: seen.append(seed) or 1)  # type: ignore[func-returns-value]
    stage.engine.add("a", [1], SamplingParams(seed=5, n=3, max_tokens=1))
    stage.run()
    assert sorted(seen) == [5, 6, 7]


def test_what_the_model_cannot_do_is_refused_before_anything_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(params: SamplingParams) -> None:
        raise ParameterError("no")

    stage = Stage()
    monkeypatch.setattr(stage.runner, "check", refuse)
    with pytest.raises(ParameterError):
        stage.add("a", [1])
    assert not stage.engine.has_work


def test_a_character_split_over_two_tokens_is_said_whole() -> None:
    def decode(ids: SequenceOf[int]) -> str:
        return bytes(i for i in ids if i).decode("utf-8", errors="replace")

    euro = "€uro".encode()
    stage = Stage(decode=decode, next_id=lambda ids, seed: euro[len(ids) - 1])
    stage.add("a", [1], len(euro))
    stage.run()
    assert [e.text for e in stage.events if isinstance(e, Delta)] == ["", "", "€", "u", "r", "o"]


def test_a_request_of_an_idle_engine_costs_no_block() -> None:
    stage = Stage(num_blocks=16)
    counts = stage.engine.counts()
    assert (counts.total, counts.free, counts.cached, counts.used, counts.shared) == (16, 16, 0, 0, 0)
    stage.add("a", prompt(1, 6), 1)
    assert stage.engine.counts().waiting == 1
    stage.run()
    counts = stage.engine.counts()
    assert (counts.free, counts.cached, counts.used, counts.running, counts.waiting) == (14, 2, 0, 0, 0)
    assert spell([1, 2]) == "ab"
