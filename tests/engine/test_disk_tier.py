"""Laws of blocks that outlive the pool: found again to the token, waited for once, and never in anybody's way."""

from tests.engine.memory_files import MemoryFiles
from tests.engine.memory_stage import Stage

PROMPT = [*range(1, 41)]


def after_a_turn(files: MemoryFiles, prompt: list[int] = PROMPT, *, num_tokens: int = 3) -> list[int]:
    """A run in which somebody asked and everything was written; the ids of prompt and reply."""
    stage = Stage(files=files)
    stage.add("first", prompt, num_tokens)
    stage.run()
    stage.serve()
    return [*prompt, *stage.outcomes["first"].token_ids]


def test_after_a_restart_a_chat_goes_on_where_its_last_turn_ended() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    stage = Stage(files=files)
    stage.add("next", [*history, 50], 2)
    stage.run()
    assert stage.usage("next") == (42, 2)  # the last id of a reply is never computed, and the question is new
    assert stage.outcomes["next"].token_ids == [51, 52]


def test_full_blocks_and_the_tail_of_a_turn_are_written_once() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    assert [block.tokens for block, _ in files.blocks.values()] == [
        *(tuple(history[start : start + 4]) for start in range(0, 40, 4)),
        tuple(history[40:42]),
    ]
    stage = Stage(files=files)
    stage.add("again", PROMPT, 3)
    stage.run()
    before = dict(files.blocks)
    stage.serve()
    assert files.blocks == before


def test_a_request_that_is_not_kept_leaves_nothing_on_disk() -> None:
    files = MemoryFiles()
    stage = Stage(files=files)
    stage.add("private", PROMPT, is_kept=False)
    stage.run()
    stage.serve()
    assert files.blocks == {}
    assert files.touched == []


def test_a_step_that_failed_leaves_nothing_on_disk() -> None:
    files = MemoryFiles()
    stage = Stage(files=files)
    stage.add("failing", PROMPT)
    stage.runner.fails = "halfway"
    stage.run()
    stage.serve()
    assert files.blocks == {}


def test_what_the_pool_still_has_is_not_read() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    stage = Stage(files=files)
    stage.add("head", history[:20], 1)
    stage.run()
    stage.add("next", [*history, 50], 1)
    stage.run()
    first, second = files.reads
    assert [block.depth for block in first] == [0, 1, 2, 3, 4]
    assert [block.depth for block in second] == [5, 6, 7, 8, 9, 10]


def test_while_blocks_are_read_others_run_and_the_request_waits() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    stage = Stage(files=files)
    stage.add("next", [*history, 50], 1)
    stage.step()
    assert stage.engine.awaits_disk
    stage.add("other", [9] * 5, 2)
    stage.step()
    assert (stage.engine.counts().running, stage.engine.counts().waiting) == (1, 1)
    for _ in range(2):
        stage.step()
    assert stage.reason("other") == "length"
    stage.run()
    assert stage.usage("next") == (42, 2)


def test_ten_that_want_the_same_prefix_read_it_once() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    stage = Stage(files=files)
    for number in range(10):
        stage.add(str(number), [*history, 50 + number], 1)
    stage.run()
    assert len(files.reads) == 1
    assert {stage.usage(str(number)) for number in range(10)} <= {(42, 2), (43, 1)}


def test_a_damaged_block_ends_the_load_and_the_rest_is_computed_and_written_anew() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    damaged = next(block for block, _ in files.blocks.values() if block.depth == 5)
    files.lost.add(damaged.name)
    stage = Stage(files=files)
    stage.add("next", [*history, 50], 2)
    stage.run()
    assert stage.usage("next") == (20, 24)
    assert stage.outcomes["next"].token_ids == [51, 52]
    stage.serve()
    assert damaged.name in files.blocks
    assert files.lost == set()


def test_an_aborted_request_leaves_its_load_to_others() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    stage = Stage(files=files)
    stage.add("stopped", [*history, 50], 1)
    stage.step()
    stage.engine.abort("stopped")
    stage.step()
    assert stage.reason("stopped") == "aborted"
    stage.serve()
    stage.add("next", [*history, 50], 1)
    stage.run()
    assert (len(files.reads), stage.usage("next")) == (1, (42, 2))


def test_a_load_gives_way_to_a_reply_that_needs_its_blocks() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    stage = Stage(num_blocks=16, files=files)
    stage.add("running", [7] * 12, 52)
    stage.step()
    stage.add("next", [*history, 50], 1)
    for _ in range(30):  # nothing is read meanwhile
        stage.step()
    assert stage.engine.counts().running == 1
    assert not any(type(event).__name__ == "Preempted" for event in stage.events)
    stage.run()
    assert stage.reason("running") == "length"
    assert stage.outcomes["next"].token_ids == [51]


def test_a_prompt_that_is_computed_sooner_than_read_is_computed() -> None:
    files = MemoryFiles(bytes_per_s=1e12, tokens_per_s=1.0)
    history = after_a_turn(files)
    slow = MemoryFiles(bytes_per_s=1.0, tokens_per_s=1e9)
    slow.blocks = files.blocks
    stage = Stage(files=slow)
    stage.add("next", [*history, 50], 1)
    stage.run()
    assert (slow.reads, stage.usage("next")) == ([], (0, 44))


def test_a_block_that_is_computed_sooner_than_read_is_not_written() -> None:
    files = MemoryFiles(bytes_per_s=1.0, tokens_per_s=1e9)
    after_a_turn(files)
    assert files.blocks == {}


def test_a_prompt_that_shares_part_of_a_stored_block_ends_at_the_exact_token() -> None:
    files = MemoryFiles()
    after_a_turn(files)
    stage = Stage(files=files)
    stage.add("other", [*PROMPT[:22], 99, 98], 1)
    stage.run()
    assert stage.usage("other") == (22, 2)


def test_blocks_of_another_fingerprint_are_never_found() -> None:
    files = MemoryFiles()
    history = after_a_turn(files)
    stage = Stage(files=files, fingerprint="another model")
    stage.add("next", [*history, 50], 1)
    stage.run()
    assert (files.reads, stage.usage("next")) == ([], (0, 44))


def test_a_block_that_left_the_pool_before_it_was_written_is_left_out() -> None:
    files = MemoryFiles()
    stage = Stage(files=files)
    stage.add("first", PROMPT, 3)
    stage.run()
    stage.engine.clear_cache()
    stage.serve()
    assert files.blocks == {}
    stage.add("again", PROMPT, 3)
    stage.run()
    stage.serve()
    assert len(files.blocks) == 11


def test_whoever_finishes_has_all_blocks_of_its_chain_touched() -> None:
    files = MemoryFiles()
    after_a_turn(files)
    assert set(files.touched) == set(files.blocks)


# ---- pins ----


def test_a_pinned_prefix_is_written_and_goes_last_until_the_last_pin_is_gone() -> None:
    files = MemoryFiles()
    stage = Stage(num_blocks=256, files=files)
    stage.add("private", PROMPT, 1, is_kept=False)
    stage.run()
    assert stage.engine.pin("system", PROMPT[:10]) == 10
    assert stage.engine.pin("other", PROMPT[:8]) == 8
    stage.serve()
    assert [block.tokens for block, _ in files.blocks.values()] == [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10)]
    assert files.pinned == set(files.blocks)
    stage.engine.unpin("system")
    assert {files.blocks[name][0].depth for name in files.pinned} == {0, 1}
    stage.engine.unpin("other")
    stage.engine.unpin("unknown")
    assert files.pinned == set()
