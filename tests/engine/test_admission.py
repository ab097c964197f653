"""Who may start in a pool that is nearly full; ids count on, so a prompt that ends in 7 is answered 8, 9, 10."""

from tests.engine.memory_stage import Stage, prompt


def happened(stage: Stage, kind: str) -> list[str]:
    """The requests of all events of a kind so far."""
    return [event.request_id for event in stage.events if type(event).__name__ == kind]


def test_what_a_waiting_request_will_read_is_evicted_after_what_nobody_waits_for() -> None:
    stage = Stage(num_blocks=8, max_num_seqs=1)
    for name, start in (("old", 100), ("new", 200)):
        stage.add(name, prompt(start, 12), 1)
        stage.run()
    stage.add("large", prompt(300, 17), 1)
    stage.add("old again", [*prompt(100, 12), 7], 1)
    stage.run()
    assert stage.usage("old again") == (12, 1)
    stage.add("new again", [*prompt(200, 12), 7], 1)
    stage.run()
    assert stage.usage("new again") == (0, 13)


def late_comer(num_tokens: int) -> Stage:
    """A prompt of so many tokens has come to three that run in most of the pool."""
    stage = Stage(num_blocks=32, max_num_batched_tokens=200)
    for number in range(3):
        stage.add(str(number), prompt(1000 * number + 1, 32), 6)
    stage.step()
    stage.add("late", prompt(5000, num_tokens), 3)
    stage.step()
    return stage


def test_a_request_waits_where_those_that_run_would_soon_take_its_blocks() -> None:
    stage = late_comer(16)
    assert happened(stage, "Started") == ["0", "1", "2"]
    stage.run()
    assert happened(stage, "Preempted") == []
    assert stage.outcomes["late"].token_ids == prompt(5016, 3)


def test_a_request_that_fits_with_room_to_grow_starts_at_once() -> None:
    assert happened(late_comer(12), "Started") == ["0", "1", "2", "late"]


def test_where_nothing_runs_a_request_may_have_the_whole_pool() -> None:
    stage = Stage(num_blocks=32, max_num_batched_tokens=200)
    stage.add("a", prompt(1, 127), 2)
    stage.run()
    assert (stage.reason("a"), stage.outcomes["a"].token_ids) == ("length", [128, 129])


def test_background_work_makes_way_for_a_person_with_room_to_grow() -> None:
    stage = Stage(num_blocks=32, max_num_batched_tokens=200)
    stage.add("title", prompt(1, 64), 20, priority=1)
    stage.add("chat", prompt(1000, 30), 20)
    stage.step()
    stage.add("person", prompt(2000, 26), 2)
    stage.step()
    assert happened(stage, "Preempted") == ["title"]
    assert happened(stage, "Started") == ["chat", "title", "person"]
