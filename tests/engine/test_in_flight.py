"""What holds while a step is computed and the host is busy with the one before; ids count on from the prompt's last."""

import logging
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from typing import NoReturn

import pytest
from tests.engine.memory_runner import Step
from tests.engine.memory_stage import Stage, prompt, spell

from octavo_engine.batch import Batch, PendingStep
from octavo_engine.block_manager import BlockManager
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.errors import DeviceLostError
from octavo_engine.events import Delta, Finished, Preempted, Started, StopReason
from octavo_engine.params import SamplingParams
from octavo_engine.scheduler import Scheduler


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Steps that fail on purpose need not fill the log."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def finished(stage: Stage, request_id: str) -> Finished:
    done = stage.outcomes[request_id].finished
    assert done is not None
    return done


def test_each_step_tells_of_the_step_before_and_computes_nothing_of_its_own() -> None:
    stage = Stage()
    stage.add("a", [5, 6], 3)
    assert stage.step() == [Started("a", 0)]
    for number, text in ((1, "g"), (2, "h")):
        assert stage.step() == [Delta("a", text, (6 + number,))]
        assert (stage.runner.num_computed, len(stage.runner.steps)) == (number, number + 1)
    assert [type(event) for event in stage.step()] == [Delta, Finished]
    assert (stage.runner.num_computed, len(stage.runner.steps), stage.engine.has_work) == (3, 3, False)


def test_text_is_made_when_the_next_step_is_launched() -> None:
    steps: list[Step] = []
    num_launched: list[int] = []

    def decode(ids: SequenceOf[int]) -> str:
        num_launched.append(len(steps))
        return spell(ids)

    stage = Stage(decode=decode)
    num_launched.clear()  # the decoder is tried at the start
    stage.runner.steps = steps
    stage.add("a", [5, 6], 3)
    stage.run()
    assert num_launched[:3] == [2, 3, 3]  # no fourth step follows the last id


def test_wait_computes_the_step_and_changes_nothing_else() -> None:
    stage = Stage()
    stage.add("a", [5, 6], 3)
    stage.engine.wait()
    stage.step()
    before = stage.engine.counts()
    for _ in range(2):
        stage.engine.wait()
    assert (stage.runner.num_computed, stage.engine.counts()) == (1, before)
    assert stage.step() == [Delta("a", "g", (7,))]


def test_a_request_that_comes_while_a_step_is_computed_is_part_of_the_next() -> None:
    stage = Stage()
    stage.add("a", [5, 6], 9)
    stage.step()
    stage.engine.wait()
    stage.add("b", [1, 2])
    stage.step()
    assert stage.runner.steps[-1].rows == ("a", "b")


def test_a_stop_string_ends_a_reply_at_once_and_its_blocks_go_back_with_the_step_in_flight() -> None:
    stage = Stage()
    stage.engine.add("a", prompt(1, 6), SamplingParams(stop=("h",), max_tokens=9))
    for _ in range(3):
        stage.step()
    assert (finished(stage, "a").stop_reason, finished(stage, "a").usage.completion_tokens) == (StopReason.STOP, 2)
    assert (stage.engine.counts().used, stage.engine.counts().running, stage.engine.has_work) == (2, 0, True)
    assert stage.step() == []
    assert (stage.engine.counts().used, stage.engine.has_work) == (0, False)
    assert stage.outcomes["a"].token_ids == [7, 8]


def test_the_ids_told_are_those_counted_though_more_were_sampled_at_once() -> None:
    stage = Stage(num_decode_steps=4)
    stage.engine.add("a", [1], SamplingParams(stop=("d",), max_tokens=20))
    stage.run()
    assert (stage.outcomes["a"].token_ids, finished(stage, "a").usage.completion_tokens) == ([2, 3, 4], 3)


def test_ids_of_several_steps_are_one_delta_where_no_stop_string_can_part_them() -> None:
    stage = Stage(num_decode_steps=4)
    stage.add("a", [1], 9)
    stage.run()
    assert [e for e in stage.events if isinstance(e, Delta)] == [
        Delta("a", "b", (2,)),
        Delta("a", "cdef", (3, 4, 5, 6)),
        Delta("a", "ghij", (7, 8, 9, 10)),
    ]


def test_blocks_are_hashed_once_a_step_while_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, seen = Stage(), []
    manager = stage.engine._scheduler.manager
    foresee = manager.foresee

    def watched(batch: Batch) -> None:
        seen.append(batch)
        foresee(batch)

    monkeypatch.setattr(manager, "foresee", watched)
    stage.add("a", prompt(1, 40), 3)
    while stage.engine.has_work:
        stage.engine.wait()
        stage.step()
    assert len(seen) == len({id(batch) for batch in seen}) == 3


@pytest.mark.parametrize("is_computed", [False, True])
def test_an_abort_ends_a_request_without_the_ids_in_flight(is_computed: bool) -> None:
    stage = Stage()
    stage.add("a", prompt(1, 6), 9)
    stage.add("b", prompt(20, 6), 9)
    for _ in range(3):
        stage.step()
    if is_computed:
        stage.engine.wait()
    stage.engine.abort("a")
    stage.step()
    assert finished(stage, "a").stop_reason is StopReason.ABORTED
    assert (stage.outcomes["a"].token_ids, finished(stage, "a").usage.completion_tokens) == ([7, 8], 2)
    assert stage.runner.steps[-1].rows == ("b",)
    stage.run()
    assert stage.outcomes["b"].token_ids == prompt(26, 9)


def test_what_a_request_computed_while_it_was_stopped_is_found_again() -> None:
    stage = Stage()
    stage.add("a", prompt(1, 20), 9)
    stage.step()
    stage.engine.abort("a")
    stage.step()
    stage.add("again", prompt(1, 20), 1)
    stage.run()
    assert stage.usage("again") == (19, 1)


def test_nobody_finds_what_a_step_in_flight_has_yet_to_write() -> None:
    stage = Stage()
    stage.add("a", prompt(1, 8), 9)
    stage.step()
    stage.engine.wait()
    assert stage.manager.match(stage.scheduler.running[0]).num_tokens == 0
    stage.step()
    assert stage.manager.match(stage.scheduler.running[0]).num_tokens == 8


def test_a_tokenizer_that_throws_ends_its_request_while_the_next_step_runs() -> None:
    def decode(ids: SequenceOf[int]) -> str:
        if 8 in ids:
            raise ValueError("no text for 8")
        return spell(ids)

    stage = Stage(decode=decode)
    stage.add("bad", prompt(1, 6), 9)
    stage.add("b", prompt(20, 6), 3)
    for _ in range(3):
        stage.step()
    assert finished(stage, "bad").stop_reason is StopReason.FAILED
    assert stage.runner.steps[-1].rows == ("bad", "b")
    stage.run()
    assert stage.outcomes["b"].token_ids == [26, 27, 28]


@pytest.mark.parametrize("how", ["launch", "before", "halfway"])
def test_a_step_that_fails_takes_its_rows_and_nothing_that_was_said_before(how: str) -> None:
    stage = Stage(max_num_seqs=2)
    for name, start in (("a", 1), ("b", 20), ("waits", 40)):
        stage.add(name, prompt(start, 6), 3)
    stage.step()
    stage.runner.fails = how
    assert [e.request_id for e in stage.step() if isinstance(e, Delta)] == ["a", "b"]
    stage.step()
    assert [stage.reason(name) for name in ("a", "b")] == ["failed", "failed"]
    assert finished(stage, "a").usage.completion_tokens == 1
    stage.run()
    assert stage.outcomes["waits"].token_ids == [46, 47, 48]
    stage.add("again", prompt(1, 6), 3)
    assert stage.run()["again"].token_ids == [7, 8, 9]


def test_a_request_that_ended_while_its_last_step_failed_is_told_of_once() -> None:
    stage = Stage()
    stage.engine.add("a", prompt(1, 6), SamplingParams(stop=("h",), max_tokens=9))
    for _ in range(2):
        stage.step()
    stage.runner.fails = "halfway"
    stage.run()
    assert finished(stage, "a").stop_reason is StopReason.STOP
    assert stage.engine.counts().used == 0
    stage.add("again", prompt(1, 6), 3)
    assert stage.run()["again"].token_ids == [7, 8, 9]


def test_a_request_is_not_ended_by_the_last_step_of_one_that_had_its_id() -> None:
    stage = Stage()
    stage.engine.add("a", prompt(1, 6), SamplingParams(stop=("h",), max_tokens=9))
    for _ in range(2):
        stage.engine.step()
    stage.runner.fails = "halfway"
    stage.engine.step()
    stage.add("a", prompt(20, 6), 3)
    assert stage.run()["a"].token_ids == [26, 27, 28]


def test_who_is_over_before_it_could_be_preempted_is_not_said_to_wait() -> None:
    stage = Stage(num_blocks=5)
    stage.add("old", prompt(1, 6), 10)
    stage.engine.add("new", prompt(50, 6), SamplingParams(stop=("f",), ignore_eos=True, max_tokens=10))
    stage.run()
    assert stage.outcomes["new"].token_ids == [56, 57, 58]
    assert not [e for e in stage.events if isinstance(e, Preempted)]


@pytest.mark.parametrize("is_computed", [False, True])
def test_a_fork_of_a_sequence_in_flight_goes_on_from_the_ids_that_are_told(is_computed: bool) -> None:
    stage = Stage(num_decode_steps=4)
    stage.add("a", prompt(1, 6), 12)
    for _ in range(3):
        stage.step()
    if is_computed:
        stage.engine.wait()
    assert stage.outcomes["a"].token_ids == prompt(7, 5)
    stage.engine.fork("a", "b", SamplingParams(max_tokens=9))
    stage.run()
    assert stage.outcomes["a"].token_ids == prompt(7, 12)
    assert (stage.outcomes["b"].token_ids, stage.usage("b")) == (prompt(12, 9), (10, 1))


def test_a_fork_does_not_share_a_copy_that_was_not_made() -> None:
    stage = Stage()
    stage.add("first", prompt(1, 12), 1)
    stage.run()
    stage.add("parent", [*prompt(1, 10), 70], 3)
    stage.runner.fails = "before"
    stage.step()
    assert len(stage.runner.steps[-1].copies) == 1
    stage.engine.fork("parent", "child")
    stage.run()
    assert (stage.reason("parent"), stage.outcomes["child"].token_ids) == ("failed", [71, 72, 73])


@pytest.mark.parametrize("is_at_launch", [True, False])
def test_a_lost_device_ends_the_engine_and_not_one_step(is_at_launch: bool) -> None:
    """Whoever runs it starts a new process; here every later step would fail too."""

    class LostRunner:
        def check(self, params: SamplingParams) -> None: ...

        def launch(self, batch: Batch) -> PendingStep:
            return lose() if is_at_launch else PendingStep(lose)

    def lose() -> NoReturn:
        raise DeviceLostError("gone")

    engine = Engine(Scheduler(BlockManager(8, 4), EngineConfig(), 32), LostRunner(), lambda ids: "", [])
    engine.add("a", [5, 6], SamplingParams(max_tokens=3))
    engine.step()
    with pytest.raises(DeviceLostError):
        engine.step()
