"""Who is admitted next."""

from octavo_engine.params import SamplingParams
from octavo_engine.sequence import Sequence
from octavo_engine.waiting import WaitingQueue


def queue(*names: str) -> tuple[WaitingQueue, dict[str, Sequence]]:
    """A queue of requests named by session and number, "a1"; a capital session is background work."""
    waiting = WaitingQueue()
    sequences = {
        name: Sequence(name, [1], SamplingParams(), session=name[0], priority=int(name[0].isupper())) for name in names
    }
    for sequence in sequences.values():
        waiting.push(sequence)
    return waiting, sequences


def order(waiting: WaitingQueue) -> list[str]:
    return [sequence.request_id for sequence in waiting]


def test_sessions_take_turns_and_each_is_served_in_order() -> None:
    waiting, _ = queue("a1", "a2", "a3", "b1", "c1", "b2")
    assert order(waiting) == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(waiting) == 6


def test_a_session_that_was_served_goes_to_the_end_of_the_round() -> None:
    waiting, sequences = queue("a1", "a2", "b1", "b2")
    waiting.remove(sequences["a1"])
    assert order(waiting) == ["b1", "a2", "b2"]


def test_a_request_aborted_in_the_queue_costs_its_session_no_turn() -> None:
    waiting, sequences = queue("a1", "a2", "b1")
    waiting.remove(sequences["a2"])
    assert order(waiting) == ["a1", "b1"]


def test_background_work_waits_for_persons() -> None:
    waiting, _ = queue("A1", "A2", "b1", "b2")
    assert order(waiting) == ["b1", "b2", "A1", "A2"]


def test_a_preempted_request_goes_first_within_its_priority() -> None:
    waiting, sequences = queue("A1", "b1", "A2", "b2")
    for name in ("A2", "b2"):
        waiting.remove(sequences[name])
        waiting.push_front(sequences[name])
    assert order(waiting) == ["b2", "b1", "A2", "A1"]


def test_nothing_is_left_of_a_queue_that_was_emptied() -> None:
    waiting, sequences = queue("a1", "b1")
    waiting.push_front(Sequence("p", [1], SamplingParams()))
    for sequence in [*waiting]:
        waiting.remove(sequence)
    assert (len(waiting), order(waiting)) == (0, [])
    assert sequences.keys() == {"a1", "b1"}
