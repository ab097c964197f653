"""Who comes first, and who gives way; ids count on, so a prompt that ends in 7 is answered 8, 9, 10."""

import pytest
from tests.engine.memory_stage import Stage, prompt, rows


def test_a_chat_with_eight_queued_requests_does_not_starve_another() -> None:
    stage = Stage(max_num_seqs=1)
    for number in range(8):
        stage.add(f"a{number}", [100 * number + 1], 1, session="a")
    stage.add("b", [7], 1, session="b")
    stage.run()
    assert [step.rows[0] for step in stage.runner.steps][:3] == ["a0", "b", "a1"]


def test_background_work_waits_for_a_person() -> None:
    stage = Stage(max_num_seqs=1)
    stage.add("title", [1], 1, priority=1)
    stage.add("person", [7], 1)
    stage.run()
    assert [step.rows[0] for step in stage.runner.steps] == ["person", "title"]


def test_background_work_is_preempted_before_a_person_who_came_later() -> None:
    stage = Stage(num_blocks=4)
    stage.add("title", prompt(50, 6), 4, priority=1)
    stage.step()
    stage.add("person", prompt(1, 6), 6)
    stage.run()
    assert [type(e).__name__ for e in stage.events if e.request_id == "person"].count("Preempted") == 0
    assert [type(e).__name__ for e in stage.events if e.request_id == "title"].count("Preempted") == 1
    assert stage.outcomes["title"].token_ids == [56, 57, 58, 59]


@pytest.mark.parametrize(("num_blocks", "max_num_seqs"), [(64, 2), (8, 8)], ids=["places", "blocks"])
def test_background_work_gives_a_waiting_person_its_place_or_its_blocks(num_blocks: int, max_num_seqs: int) -> None:
    stage = Stage(num_blocks=num_blocks, max_num_seqs=max_num_seqs)
    for name, start in (("title", 50), ("summary", 70)):
        stage.add(name, prompt(start, 14), 6, priority=1)
    stage.step()
    stage.add("person", prompt(1, 6), 2)
    events = stage.step()
    assert [e.request_id for e in events if type(e).__name__ == "Preempted"] == ["summary"]
    assert rows(stage) == {"title": 1, "person": 6}
    stage.run()
    assert stage.outcomes["summary"].token_ids == prompt(84, 6)


def test_background_work_goes_on_beside_a_person_where_there_is_room() -> None:
    stage = Stage()
    stage.add("title", prompt(50, 6), 6, priority=1)
    stage.step()
    stage.add("person", prompt(1, 6), 2)
    stage.step()
    assert rows(stage) == {"title": 1, "person": 6}


def test_background_work_that_had_filled_the_pool_ends_when_it_made_way() -> None:
    stage = Stage(num_blocks=4)
    stage.add("title", prompt(50, 6), 30, priority=1)
    while len(stage.scheduler.running[0].token_ids if stage.scheduler.running else []) < 16:
        stage.step()
    stage.add("person", [1], 2)
    stage.run()
    assert (stage.reason("title"), stage.outcomes["title"].token_ids) == ("kv_full", prompt(56, 11))
    assert stage.outcomes["person"].token_ids == [2, 3]


def test_a_waiting_person_does_not_preempt_another_person() -> None:
    stage = Stage(max_num_seqs=1)
    stage.add("a", [1], 6)
    stage.step()
    stage.add("b", [7], 2)
    stage.step()
    assert rows(stage) == {"a": 1}


def test_pins_give_way_before_a_person_is_preempted_and_after_background_work_is() -> None:
    stage = Stage(num_blocks=8, max_pinned_share=0.25)
    stage.add("system", prompt(50, 8), 1)
    stage.run()
    assert stage.engine.pin("system", prompt(50, 8)) == 8
    for name, start, priority in (("a", 100, 0), ("b", 120, 0), ("title", 140, 1)):
        stage.add(name, prompt(start, 6), 9, priority=priority)
    pinned: dict[str, int] = {}
    while stage.engine.has_work:
        for event in stage.step():
            if type(event).__name__ == "Preempted":
                pinned.setdefault(event.request_id, stage.engine.counts().pinned)
    assert pinned == {"title": 2}
    assert stage.engine.counts().pinned == 0


def test_a_request_that_waits_for_a_prefix_is_not_overtaken_in_its_session() -> None:
    stage = Stage(num_blocks=200, max_num_batched_tokens=32)
    stage.add("first", prompt(1000, 100), 1, session="a")
    stage.step()
    stage.add("waits", [*prompt(1000, 99), 1], 1, session="b")
    stage.add("next", [5, 6], 1, session="b")
    stage.add("other", [7, 8], 1, session="c")
    started = [e.request_id for _ in range(6) for e in stage.step() if type(e).__name__ == "Started"]
    assert started == ["other", "waits", "next"]


def test_the_newest_is_preempted_first() -> None:
    stage = Stage(num_blocks=6)
    for name, start in (("a", 10), ("b", 30), ("c", 50)):
        stage.add(name, prompt(start, 7), 8)
    stage.run()
    preempted = [e.request_id for e in stage.events if type(e).__name__ == "Preempted"]
    assert (preempted[0], "a" in preempted) == ("c", False)
    assert stage.outcomes["c"].token_ids == prompt(57, 8)
