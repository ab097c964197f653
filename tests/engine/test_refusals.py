"""What one request may not do to the others: wrong ids, forks that cannot be, a runner or a tokenizer that errs."""

import logging
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf

import pytest
from tests.engine.memory_stage import Stage, spell

from octavo_engine.engine import Engine
from octavo_engine.errors import ParameterError, RequestRefusedError
from octavo_engine.events import StopReason
from octavo_engine.params import SamplingParams

SCHEMA = '{"type": "object"}'


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Steps that fail on purpose need not fill the log."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("wrong", [-1, 100, 2**32, 2**70])
def test_an_id_outside_the_vocabulary_is_refused_with_its_place_and_the_range(wrong: int) -> None:
    stage = Stage(vocabulary=100)
    with pytest.raises(RequestRefusedError, match=rf"token 2 .* is id {wrong}; the model's ids are 0 to 99"):
        stage.add("a", [0, 99, wrong, 7])
    assert not stage.engine.has_work
    stage.engine.check([0, 99], SamplingParams())


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_a_runner_without_a_vocabulary_takes_what_a_digest_can_name(wrong: int) -> None:
    stage = Stage()
    with pytest.raises(RequestRefusedError, match="the model's ids are 0 to 4294967295"):
        stage.add("a", [5, wrong])
    stage.add("b", [2**32 - 2, 2**32 - 1] * 4, 1)
    stage.engine.abort("b")
    stage.run()


@pytest.mark.parametrize("num_extra", [-1, 1])
def test_a_runner_that_gives_the_wrong_number_of_ids_fails_its_step_loudly(num_extra: int) -> None:
    stage = Stage()
    for name in ("a", "b"):
        stage.add(name, [5, 6], 3)
    stage.step()
    stage.runner.num_extra = num_extra
    stage.step()
    stage.runner.num_extra = 0
    stage.step()
    assert [stage.reason(name) for name in ("a", "b")] == ["failed", "failed"]
    finished = stage.outcomes["a"].finished
    assert finished is not None
    assert f"the runner gave {2 + num_extra} ids and 0 logprobs where 2 were due" in finished.error
    stage.add("again", [5, 6], 2)
    assert stage.run()["again"].token_ids == [7, 8]


def spell_but_not(bad: int, ids: SequenceOf[int]) -> str:
    if bad in ids:
        raise ValueError(f"no text for {bad}")
    return spell(ids)


@pytest.mark.parametrize("is_at_the_end", [False, True])
def test_a_tokenizer_that_throws_ends_its_own_request_alone(is_at_the_end: bool) -> None:
    stage = Stage(decode=lambda ids: spell_but_not(13, ids))
    for name, start in (("a", 2), ("bad", 11), ("c", 21)):
        stage.add(name, [start - 1, start], 2 if is_at_the_end else 4)
    stage.run()
    assert (stage.outcomes["bad"].text, stage.outcomes["bad"].token_ids) == ("l", [12, 13])
    finished = stage.outcomes["bad"].finished
    assert finished is not None
    assert finished.stop_reason is StopReason.FAILED
    assert "the tokenizer cannot decode the reply: ValueError('no text for 13')" in finished.error
    for name, text in (("a", "cdef"), ("c", "vwxy")):
        assert stage.outcomes[name].text == text[: 2 if is_at_the_end else 4]


def begun(params: SamplingParams) -> Engine:
    """An engine whose request "a" has said two tokens."""
    stage = Stage()
    stage.engine.add("a", [5, 6], params)
    for _ in range(2):
        stage.step()
    return stage.engine


def test_a_fork_of_several_replies_is_refused() -> None:
    with pytest.raises(ParameterError, match="n is 3; it must be 1 for a fork"):
        begun(SamplingParams()).fork("a", "b", SamplingParams(n=3))


def test_a_fork_of_a_request_that_is_over_is_refused_by_name() -> None:
    with pytest.raises(RequestRefusedError, match="request 'z' is unknown or finished"):
        begun(SamplingParams()).fork("z", "b")


@pytest.mark.parametrize("params", [None, SamplingParams(json_schema=SCHEMA)])
def test_a_fork_inside_a_json_reply_is_refused(params: SamplingParams | None) -> None:
    engine = begun(SamplingParams(json_schema=SCHEMA))
    with pytest.raises(ParameterError, match="json_schema is set; a fork would begin new JSON inside"):
        engine.fork("a", "b", params)
    engine.fork("a", "plain", SamplingParams())


def test_a_fork_may_begin_json_where_its_parent_has_none() -> None:
    engine = begun(SamplingParams())
    engine.fork("a", "b", SamplingParams(json_schema=SCHEMA))
    assert engine.counts().running + engine.counts().waiting == 2


def seeds_of_forks() -> list[int]:
    """The seeds of a seeded request's two replies, of three forks of the first, and of one with a seed of its own."""
    seeds: list[int] = []
    stage = Stage(next_id=lambda ids, seed: seeds.append(seed) or 1)  # type: ignore[func-returns-value]
    stage.engine.add("a", [5], SamplingParams(seed=9, n=2, max_tokens=1))
    for number in range(3):
        stage.engine.fork("a", f"fork {number}")
    stage.engine.fork("a", "told", SamplingParams(seed=77, max_tokens=1))
    stage.run()
    return sorted(seeds)


def test_forks_of_one_seeded_request_draw_from_streams_of_their_own_and_again_the_same() -> None:
    seeds = seeds_of_forks()
    assert len(set(seeds)) == 6
    assert {9, 10, 77} < set(seeds)
    assert seeds_of_forks() == seeds
