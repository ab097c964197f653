"""Steps that the device takes ahead of the host change no reply, whoever comes and goes meanwhile."""

from collections import defaultdict

import pytest
from tests.gpu.stage import make_engine, on_hopper, prompt

from octavo_engine.batch import Batch
from octavo_engine.engine import Engine
from octavo_engine.events import Delta, Event
from octavo_engine.params import SamplingParams
from octavo_engine.runner.fast.course import Course
from octavo_engine.runner.fast.fast_runner import FastRunner


def make(most_ahead: int) -> Engine:
    engine = make_engine("Qwen3Config", num_decode_steps=4)
    runner = engine.runner
    assert isinstance(runner, FastRunner)
    assert runner._fused
    runner._most_ahead = most_ahead
    return engine


def replies(engine: Engine) -> dict[str, list[int]]:
    """Of requests of all lengths, one after the other, of which one is aborted and one is forked."""
    found: defaultdict[str, list[int]] = defaultdict(list)

    def take(events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Delta):
                found[event.request_id] += event.token_ids

    for number, length in enumerate([5, 250, 300, 40, 511, 100]):
        is_drawn = number % 2
        params = SamplingParams(temperature=float(is_drawn), seed=number, max_tokens=30 + 7 * number, ignore_eos=True)
        engine.add(str(number), prompt(length, number), params)
        for _ in range(2 + number % 3):
            take(engine.step())
        if number == 3:
            engine.abort("1")
            engine.fork("2", "fork", SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True))
    while engine.has_work:
        take(engine.step())
    engine.check_integrity()
    return found


@on_hopper
def test_replies_are_the_same_however_far_the_device_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, continued = list[int](), list[bool]()
    num_ahead, continues = Course.num_ahead, Course.continues

    def counted(course: Course, num_steps: int, most: int) -> int:
        ahead.append(num_ahead(course, num_steps, most))
        return ahead[-1]

    def noted(course: Course, batch: Batch) -> bool:
        continued.append(continues(course, batch))
        return continued[-1]

    monkeypatch.setattr(Course, "num_ahead", counted)
    monkeypatch.setattr(Course, "continues", noted)
    found = []
    for most_ahead in (0, 1, 3):
        engine = make(most_ahead)
        ahead.clear()  # what was counted at the start
        continued.clear()
        found.append(replies(engine))
        assert max(ahead) == most_ahead
        assert {True, False} <= set(continued)
    assert found[0] == found[1] == found[2]
    assert {name: len(ids) for name, ids in found[0].items() if name != "1"} == {
        "0": 30, "2": 44, "3": 51, "4": 58, "5": 65, "fork": 50,
    }  # fmt: skip
