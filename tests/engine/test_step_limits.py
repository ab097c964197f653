"""What becomes of a step that the device has no memory for: a row takes 16 bytes here, a token 4, a block 4 tokens."""

import logging

import pytest
from tests.engine.memory_stage import Stage, prompt

from octavo_engine.batch import Batch
from octavo_engine.events import Preempted, Started
from octavo_engine.params import SamplingParams
from octavo_engine.sequence import Sequence
from octavo_engine.step_limits import NUM_CALM_STEPS, StepLimits


def sizes(stage: Stage) -> list[tuple[int, int]]:
    """Rows and tokens of each launched step."""
    return [(len(step.rows), sum(step.query_lens)) for step in stage.runner.steps]


def batch(*query_lens: int) -> Batch:
    made = Batch()
    for number, length in enumerate(query_lens):
        sequence = Sequence(str(number), prompt(1, length), SamplingParams())
        sequence.block_table = [*range(length)]
        made.add(sequence, length)
    return made


def test_a_prompt_too_large_for_the_memory_is_computed_in_halves() -> None:
    stage = Stage()
    stage.add("a", prompt(1, 40), 3)
    stage.runner.num_bytes = 16 + 4 * 12
    stage.run()
    assert sizes(stage)[:3] == [(1, 40), (1, 20), (1, 10)]
    assert sizes(stage)[3:] == [(1, 10), (1, 10), (1, 10), (1, 1), (1, 1)]
    assert stage.outcomes["a"].token_ids == [41, 42, 43]
    assert stage.events[0] == Started("a", 0)
    assert not [event for event in stage.events if isinstance(event, Preempted)]


def test_chats_that_decode_go_on_while_a_paste_is_made_smaller() -> None:
    stage = Stage()
    for name, start in (("a", 1), ("b", 20)):
        stage.add(name, prompt(start, 4), 12)
    stage.step()
    stage.add("paste", prompt(100, 40), 1)
    stage.runner.num_bytes = 3 * 16 + 4 * 8
    stage.run()
    assert [stage.outcomes[name].token_ids for name in ("a", "b", "paste")] == [prompt(5, 12), prompt(24, 12), [140]]
    assert not [event for event in stage.events if isinstance(event, Preempted)]


def test_rows_that_do_not_fit_together_wait_for_each_other_and_say_the_same() -> None:
    stage = Stage()
    for number in range(4):
        stage.add(str(number), prompt(20 * number + 1, 4), 6)
    stage.step()
    stage.step()
    stage.runner.num_bytes = 2 * 20
    stage.run()
    assert [stage.outcomes[str(n)].token_ids for n in range(4)] == [prompt(20 * n + 5, 6) for n in range(4)]
    assert [e.request_id for e in stage.events if isinstance(e, Preempted)] == ["3", "2"]


def test_a_request_whose_smallest_step_does_not_fit_ends_with_the_sizes_and_the_remedy() -> None:
    stage = Stage()
    stage.add("a", prompt(1, 9), 6)
    stage.runner.num_bytes = 16 + 4
    stage.step()
    stage.runner.num_bytes = 16
    stage.run()
    finished = stage.outcomes["a"].finished
    assert finished is not None
    assert finished.error == (
        "the device has no memory for a step of 4 tokens of this request alone, which with those before are 4 "
        "(32 bytes asked for, 16 free); free memory that other programs hold there, or set a smaller "
        "gpu_memory_utilization or kv_cache_memory_bytes"
    )
    stage.runner.num_bytes = 1000
    stage.add("again", prompt(1, 9), 2)
    assert stage.run()["again"].token_ids == [10, 11]


def test_several_decode_steps_are_run_again_as_if_they_had_not_been() -> None:
    stage = Stage(num_blocks=9, num_decode_steps=4)
    for number in range(2):
        stage.add(str(number), prompt(20 * number + 1, 4), 9)
    for _ in range(2):
        stage.step()
    stage.runner.num_bytes = 20
    stage.run()
    assert [stage.outcomes[str(n)].token_ids for n in range(2)] == [prompt(20 * n + 5, 9) for n in range(2)]


def test_a_row_whose_copy_may_not_have_been_made_begins_anew() -> None:
    stage = Stage()
    stage.add("first", prompt(1, 12), 1)
    stage.run()
    stage.runner.num_bytes = 16 + 4 * 4
    stage.add("other", [*prompt(1, 10), *prompt(70, 9)], 3)
    stage.run()
    assert [len(step.copies) for step in stage.runner.steps[1:4]] == [1, 1, 1]
    assert stage.outcomes["other"].token_ids == [79, 80, 81]


def test_a_request_that_ended_while_its_step_did_not_fit_gives_its_blocks_back() -> None:
    stage = Stage()
    stage.engine.add("a", prompt(1, 6), SamplingParams(stop=("h",), max_tokens=9))
    stage.add("b", prompt(20, 6), 4)
    for _ in range(2):
        stage.step()
    stage.step()
    stage.runner.num_bytes = 20
    stage.run()
    assert (stage.reason("a"), stage.outcomes["b"].token_ids) == ("stop", prompt(26, 4))
    assert stage.engine.counts().used == 0


def test_limits_shrink_to_one_row_of_a_block_and_never_below() -> None:
    limits = StepLimits(256, 8192, 16)
    seen = []
    made = batch(1, 1, 1, 61)
    while limits.shrink(made):
        seen.append((limits.num_rows, limits.num_tokens))
        rows = min(limits.num_rows, 4)
        made = batch(*[1] * (rows - 1), limits.num_tokens - rows + 1)
    assert seen == [(34, 34), (19, 19), (16, 16), (2, 16), (1, 16)]


def test_limits_are_lowered_for_a_while_and_both_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    limits = StepLimits(4, 64, 16)
    with caplog.at_level(logging.INFO):
        assert limits.shrink(batch(1, 1, 1, 1))
        for _ in range(NUM_CALM_STEPS):
            assert (limits.num_rows, limits.num_tokens) == (2, 16)
            limits.relax()
    assert (limits.num_rows, limits.num_tokens) == (4, 32)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "no memory for a step of 4 rows and 4 tokens; the next ones have at most 2 rows and 16" in caplog.text
    for _ in range(NUM_CALM_STEPS):
        limits.relax()
    assert (limits.num_rows, limits.num_tokens) == (4, 64)
