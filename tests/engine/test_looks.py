"""How many steps are taken between two looks of the host; ids count on, so a prompt that ends in 7 is answered 8, 9."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.memory_stage import Stage, prompt

from octavo_engine.params import SamplingParams
from octavo_engine.plan import LOOK_STEPS, most_useful


def looks(stage: Stage) -> list[tuple[int, int]]:
    """Rows and steps of each look behind the prompts'."""
    return [(len(step.rows), step.num_steps) for step in stage.runner.steps[1:]]


@given(lefts=st.lists(st.integers(1, 40), min_size=1, max_size=40), wanted=st.integers(1, 16))
def test_no_other_number_of_steps_gives_more_tokens_for_its_time(lefts: list[int], wanted: int) -> None:
    def tokens_for_time(steps: int) -> float:
        return sum(min(left, steps) for left in lefts) / (steps + LOOK_STEPS)

    assert tokens_for_time(most_useful(lefts, wanted)) == max(map(tokens_for_time, range(1, wanted + 1)))


def test_a_row_that_ends_soon_does_not_stop_many_others_and_says_no_more_than_it_should() -> None:
    stage = Stage(num_blocks=200, max_num_seqs=40, num_decode_steps=8, max_num_batched_tokens=200)
    for number in range(40):
        stage.add(str(number), prompt(100 * number + 1, 3), 2 if number == 7 else 9)
    stage.run()
    assert looks(stage) == [(40, 4), (39, 4)]
    assert [len(outcome.token_ids) for outcome in stage.outcomes.values()] == [9] * 7 + [2] + [9] * 32
    assert stage.outcomes["7"].token_ids == [704, 705]


def test_a_look_comes_with_the_end_of_one_of_few() -> None:
    stage = Stage(num_decode_steps=8)
    for name, start, length in (("a", 10, 4), ("b", 50, 12)):
        stage.add(name, prompt(start, 3), length)
    stage.run()
    assert looks(stage) == [(2, 3), (1, 8)]


def test_no_row_goes_beyond_the_context_where_others_go_on() -> None:
    stage = Stage(num_blocks=200, max_num_seqs=40, num_decode_steps=8, max_num_batched_tokens=200, max_model_len=12)
    for number in range(40):
        stage.add(str(number), prompt(100 * number + 1, 9 if number == 7 else 3), None)
    stage.run()
    assert looks(stage)[:3] == [(40, 2), (39, 4), (39, 2)]
    assert [len(outcome.token_ids) for outcome in stage.outcomes.values()] == [9] * 7 + [3] + [9] * 32


@pytest.mark.parametrize(("num_rows", "steps"), [(256, 4), (257, 1)])
def test_more_rows_than_a_launch_of_several_steps_takes_are_looked_at_each_step(num_rows: int, steps: int) -> None:
    stage = Stage(num_blocks=2000, max_num_seqs=300, num_decode_steps=8, max_num_batched_tokens=2000)
    for number in range(num_rows):
        stage.add(str(number), prompt(10 * number + 1, 3), 9)
    stage.run()
    assert looks(stage)[0] == (num_rows, steps)


def test_blocks_that_are_left_are_used_before_the_host_looks_at_each_step() -> None:
    stage = Stage(num_blocks=3, num_decode_steps=16, max_model_len=100)
    stage.add("a", prompt(1, 3), None)
    stage.run()
    assert [steps for _, steps in looks(stage)] == [8, 1]
    assert (stage.reason("a"), stage.outcomes["a"].token_ids) == ("kv_full", prompt(4, 10))


def test_a_row_whose_ids_the_host_has_a_say_in_is_looked_at_each_step() -> None:
    stage = Stage(num_decode_steps=8)
    stage.engine.add("a", [1], SamplingParams(max_tokens=4, presence_penalty=1.0))
    stage.add("b", [10], 4)
    stage.run()
    assert looks(stage) == [(2, 1)] * 3


def tables_while_running(stage: Stage, num_steps: int) -> list[int]:
    """Blocks of each running request after so many steps of the engine."""
    for _ in range(num_steps):
        stage.step()
    return [len(sequence.block_table) for sequence in stage.scheduler.running]


@pytest.mark.parametrize(("num_rows", "num_blocks", "expected"), [(1, 100, 2), (8, 100, 2), (9, 100, 1), (3, 4, 1)])
def test_few_rows_get_the_blocks_of_the_next_look_early_where_many_are_left(
    num_rows: int, num_blocks: int, expected: int
) -> None:
    """Rows of 3 tokens, in blocks of 8, of which a look of 4 steps fills no more than one."""
    stage = Stage(
        num_blocks=num_blocks, block_size=8, num_decode_steps=4 if num_rows < 5 else 8, max_num_seqs=9,
        max_num_batched_tokens=100,
    )  # fmt: skip
    for number in range(num_rows):
        stage.add(str(number), prompt(100 * number + 1, 3), 20)
    assert tables_while_running(stage, 2) == [expected] * num_rows


def test_nobody_gets_a_block_for_a_last_token_whose_keys_nobody_needs() -> None:
    stage = Stage(num_blocks=100, block_size=8, num_decode_steps=8)
    stage.add("a", prompt(1, 3), 6)
    assert tables_while_running(stage, 2) == [1]
    stage.run()
    assert stage.outcomes["a"].token_ids == [4, 5, 6, 7, 8, 9]
