"""A graph that goes on by itself serves the next look only where it computes what that one asks for."""

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.ahead_runner import NUM_PLACES, AheadRunner
from tests.engine.memory_stage import Stage, prompt

from octavo_engine.batch import Batch, StepOutput
from octavo_engine.params import SamplingParams
from octavo_engine.plan import add_decodes
from octavo_engine.runner.fast.course import Course
from octavo_engine.sequence import Sequence

if TYPE_CHECKING:
    from octavo_engine.runner.fast.graphs import DecodeGraph

SIZE, CONTEXT = 4, 63


class CountingGraph:
    """It counts its steps."""

    def __init__(self, num_rows: int = 2) -> None:
        self.num_rows, self.num_steps = num_rows, 0
        self.tables: list[list[int]] = []
        self.out = [[0] * num_rows for _ in range(NUM_PLACES)]

    def replay(self, most: int) -> int:
        self.num_steps += 1
        return 1

    def set_tables(self, tables: list[list[int]]) -> None:
        self.tables = [list(table) for table in tables]


def decoding(start: int, length: int, num_blocks: int, max_tokens: int = 40) -> Sequence:
    sequence = Sequence(str(start), range(length), SamplingParams(max_tokens=max_tokens), max_model_len=CONTEXT)
    sequence.num_computed, sequence.block_table = length - 1, list(range(start, start + num_blocks))
    return sequence


def batch_of(*sequences: Sequence, num_steps: int = 2) -> Batch:
    batch = Batch(num_steps=num_steps)
    add_decodes(batch, list(sequences))
    return batch


def course_of(batch: Batch, num_rows: int = 2) -> tuple[Course, CountingGraph]:
    graph = CountingGraph(num_rows)
    return Course.of(cast("DecodeGraph", graph), [0, 1], batch, SIZE, CONTEXT), graph


def look(course: Course, sequences: list[Sequence], num_steps: int = 2) -> None:
    """The host asks for the course's next steps, and takes them in."""
    course.queue(course.ask(num_steps).stop)
    course.told(StepOutput([7] * num_steps * len(course.sequences)))
    for sequence in sequences:
        sequence.token_ids += [7] * num_steps
        sequence.num_computed += num_steps


@pytest.fixture
def pair() -> list[Sequence]:
    """One with room for 11 steps, one with room for 9."""
    return [decoding(0, 6, 4), decoding(10, 8, 4)]


def test_steps_are_queued_once_and_those_ahead_are_the_next_looks(pair: list[Sequence]) -> None:
    course, graph = course_of(batch_of(*pair))
    assert course.ask(2) == slice(0, 2)
    course.queue(2)
    course.queue(2 + course.num_ahead(2, most=1))
    assert graph.num_steps == 3
    assert course.ask(2) == slice(2, 4)
    course.queue(4)
    assert graph.num_steps == 4


def test_the_same_rows_go_on_until_their_blocks_end(pair: list[Sequence]) -> None:
    course, _ = course_of(batch_of(*pair))
    assert course.room == 9
    for number in range(4):
        assert course.continues(batch_of(*pair)) == (number > 0)
        look(course, pair)
    assert not course.continues(batch_of(*pair))
    pair[1].block_table.append(30)
    assert not course.continues(batch_of(*pair))  # the graph does not know that one


def test_blocks_that_come_in_time_are_told_to_the_graph(pair: list[Sequence]) -> None:
    course, graph = course_of(batch_of(*pair))
    course.order = [1, 0]
    look(course, pair)
    assert course.goes_on(batch_of(*pair))
    assert not graph.tables
    pair[1].block_table.append(30)
    assert course.goes_on(batch_of(*pair))
    assert graph.tables == [[10, 11, 12, 13, 30], [0, 1, 2, 3]]
    assert course.room == 11
    for _ in range(4):
        look(course, pair)
    assert not course.goes_on(batch_of(*pair))


def test_the_graph_is_not_told_of_blocks_in_place_of_others(pair: list[Sequence]) -> None:
    course, graph = course_of(batch_of(*pair))
    look(course, pair)
    pair[0].block_table[1:2] = [50]
    pair[0].block_table.append(51)
    assert not course.goes_on(batch_of(*pair))
    assert not graph.tables


def test_other_rows_places_and_blocks_are_another_course(pair: list[Sequence]) -> None:
    course, _ = course_of(batch_of(*pair))
    look(course, pair)
    first, second = pair
    twin = decoding(10, 10, 4)
    twin.token_ids, twin.block_table = list(second.token_ids), second.block_table
    assert not course.continues(batch_of(first))
    assert not course.continues(batch_of(second, first))
    assert not course.continues(batch_of(first, twin))
    copying = batch_of(*pair)
    copying.copies = [(1, 2)]
    assert not course.continues(copying)
    second.block_table[1] = 50
    assert not course.continues(batch_of(*pair))
    second.block_table[1] = 11
    blocks = second.block_table
    second.block_table = list(blocks)  # as after it was given back and had again
    assert not course.continues(batch_of(*pair))
    second.block_table = blocks
    second.token_ids[-1] = 8  # not what the device goes on with
    assert not course.continues(batch_of(*pair))
    second.token_ids[-1] = 7
    assert course.continues(batch_of(*pair))
    look(course, [first])
    assert not course.continues(batch_of(*pair))


def test_nothing_is_computed_ahead_that_surely_nobody_asks_for(pair: list[Sequence]) -> None:
    pair[0].most = len(pair[0].token_ids) + 5
    course, _ = course_of(batch_of(*pair))
    for num_ahead in (2, 1, 0, 0):
        look(course, pair)
        assert course.num_ahead(2, most=3) == num_ahead


def test_nothing_is_computed_ahead_of_a_look_that_fills_a_graph_again(pair: list[Sequence]) -> None:
    course, _ = course_of(batch_of(*pair))
    for num_ahead in (2, 2, 2, 0):
        look(course, pair)
        assert course.num_ahead(2, most=3) == num_ahead


def test_nothing_is_asked_for_beyond_the_context() -> None:
    assert course_of(batch_of(decoding(0, 60, 16), decoding(20, 50, 16)))[0].room == CONTEXT - 60 + 1


def test_who_was_not_told_of_the_last_steps_begins_anew(pair: list[Sequence]) -> None:
    course, _ = course_of(batch_of(*pair))
    look(course, pair)
    course.ask(2)
    assert not course.continues(batch_of(*pair))


def test_idle_rows_move_on_too_and_are_not_let_go_as_far() -> None:
    pair = [decoding(0, 2, 16), decoding(20, 2, 16)]
    assert course_of(batch_of(*pair))[0].room == NUM_PLACES
    assert course_of(batch_of(*pair), num_rows=4)[0].room == NUM_PLACES // 2


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=8),
    st.integers(0, 5),
)
def test_replies_are_the_same_however_far_the_device_is_ahead(
    asked: list[tuple[int, int, int]], most_ahead: int
) -> None:
    """Of requests that come after some steps of the engine."""
    stage = Stage(block_size=16, num_decode_steps=4, most_ahead=most_ahead)
    for number, (length, max_tokens, num_steps) in enumerate(asked):
        stage.add(str(number), prompt(1000 * number + 1, length), max_tokens)
        for _ in range(num_steps):
            stage.step()
    stage.run()
    for number, (length, max_tokens, _) in enumerate(asked):
        first = 1000 * number + 1 + length
        assert stage.outcomes[str(number)].token_ids == list(range(first, first + max_tokens))


@pytest.mark.parametrize("block_size", [8, 16, 64])
def test_most_looks_of_a_long_reply_find_their_first_steps_done(block_size: int) -> None:
    stage = Stage(block_size=block_size, num_decode_steps=4, most_ahead=2)
    stage.add("a", prompt(1, 3), 100)
    stage.run()
    assert isinstance(stage.runner, AheadRunner)
    assert stage.outcomes["a"].token_ids == list(range(4, 104))
    assert stage.runner.num_continued == 20  # of 25 looks: places for ids end four times
    assert stage.runner.num_ahead == 2 * 20


@pytest.mark.parametrize("fails", ["", "halfway", "before", "launch"])
def test_a_step_ahead_is_forgotten_where_another_wrote_in_its_place(fails: str) -> None:
    """A person's prompt takes over the last block of background work, goes wrong, and leaves the block to it again."""

    def next_id(token_ids: SequenceOf[int], seed: int) -> int:
        return 1 + sum(place * token_id for place, token_id in enumerate(token_ids, 1)) % 97

    def stage(most_ahead: int | None) -> Stage:
        made = Stage(
            block_size=8, num_blocks=4, max_num_seqs=1, num_decode_steps=2, most_ahead=most_ahead, next_id=next_id,
            max_model_len=30,
        )  # fmt: skip
        made.add("work", [1, 2], 12, priority=1)
        return made

    alone, disturbed = stage(None), stage(1)
    alone.run()
    expected = alone.outcomes["work"].token_ids
    for _ in range(3):
        disturbed.step()
        disturbed.engine.wait()
    disturbed.add("person", [1, 2, *expected[:5], 50, 51], 1)
    disturbed.runner.fails = fails
    disturbed.step()
    disturbed.runner.fails = ""
    disturbed.run()
    assert disturbed.outcomes["work"].token_ids == expected
