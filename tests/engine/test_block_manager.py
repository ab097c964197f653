"""Who shares which block, who copies, and what goes first when blocks run out; block size 4 unless said."""

import pytest

from octavo_engine import block_manager, prefix_index
from octavo_engine.batch import Batch
from octavo_engine.block_manager import BlockManager
from octavo_engine.params import SamplingParams
from octavo_engine.sequence import Sequence

TEN = list(range(1, 11))


def sequence(token_ids: list[int]) -> Sequence:
    return Sequence("s", token_ids, SamplingParams())


def computed(manager: BlockManager, token_ids: list[int]) -> Sequence:
    """A sequence admitted and computed at once; it still holds its blocks."""
    admitted = sequence(token_ids)
    copies = manager.admit(admitted, manager.match(admitted))
    manager.release_sources(copies)
    manager.commit(admitted, len(token_ids))
    return admitted


def finished(manager: BlockManager, token_ids: list[int]) -> None:
    manager.release(computed(manager, token_ids))
    manager.check_integrity([])


def found(manager: BlockManager, token_ids: list[int]) -> int:
    return manager.match(sequence(token_ids)).num_tokens


def test_a_full_hit_leaves_exactly_one_token_to_compute() -> None:
    manager = BlockManager(8, 4)
    finished(manager, TEN[:8])
    assert found(manager, TEN[:8]) == 7
    assert found(manager, TEN[:9]) == 8


def test_a_prefix_is_shared_up_to_the_exact_token_inside_a_block() -> None:
    manager = BlockManager(8, 256)
    finished(manager, list(range(200)))
    assert found(manager, [*range(150), 999]) == 150


def test_a_partial_hit_copies_the_one_block_that_it_writes_to() -> None:
    manager = BlockManager(8, 4)
    first = computed(manager, TEN)
    manager.index_tail(first)
    second = sequence([*TEN[:9], 77])
    copies = manager.admit(second, manager.match(second))
    assert (first.block_table, second.block_table) == ([0, 1, 2], [0, 1, 3])
    assert (copies, second.num_computed) == ([(2, 3)], 9)
    manager.check_integrity([first, second], copies)


def test_a_tail_that_nobody_uses_is_taken_over_without_a_copy() -> None:
    manager = BlockManager(8, 4)
    finished(manager, TEN)
    following = sequence([*TEN, 11, 12])
    assert manager.admit(following, manager.match(following)) == []
    assert (following.block_table, following.num_computed) == ([0, 1, 2], 10)


@pytest.mark.parametrize(
    ("shared", "length", "expected"),
    [(1, 100, 0), (15, 100, 0), (16, 100, 16), (99, 100, 99), (1, 2, 1), (9, 10, 9), (9, 11, 0)],
)
def test_a_block_of_256_is_copied_for_16_tokens_or_for_all_that_is_missing(
    shared: int, length: int, expected: int
) -> None:
    manager = BlockManager(8, 256)
    running = computed(manager, list(range(120)))
    manager.index_tail(running)
    assert found(manager, [*range(shared), *range(1000, 1000 + length - shared)]) == expected


def test_a_tail_that_needs_no_copy_is_taken_over_however_short() -> None:
    manager = BlockManager(8, 256)
    finished(manager, [1, 2, 3])
    assert found(manager, [1, 2, 3, *range(500, 600)]) == 3
    assert found(manager, [1, 2, *range(500, 600)]) == 0


def test_a_pin_that_frees_nothing_is_kept() -> None:
    manager = BlockManager(8, 4, max_pinned_share=1.0)
    finished(manager, [50, 51, 52, 53])
    finished(manager, TEN[:8])
    using = computed(manager, [*TEN[:8], 77])
    manager.pin("in use", TEN[:8])
    manager.pin("idle", [50, 51, 52, 53])
    assert (manager.yield_pin(), manager.num_pinned, manager.yield_pin()) == (True, 2, False)
    manager.release(using)
    manager.pin("the same", TEN[:8])
    assert (manager.yield_pin(), manager.yield_pin(), manager.num_pinned) == (True, True, 0)


def test_nothing_is_findable_before_it_is_computed() -> None:
    manager = BlockManager(8, 4)
    admitted = sequence(TEN)
    manager.admit(admitted, manager.match(admitted))
    assert found(manager, TEN) == 0
    manager.commit(admitted, 6)
    assert found(manager, TEN) == 4


def test_a_chain_is_evicted_from_its_tail() -> None:
    manager = BlockManager(3, 4)
    finished(manager, [*TEN, 11, 12])
    assert [found(manager, [*TEN, 11, 12, 13]), found(manager, TEN[:9])] == [12, 8]
    computed(manager, [91])
    assert found(manager, [*TEN, 11, 12, 13]) == 8
    computed(manager, [92])
    assert found(manager, [*TEN, 11, 12, 13]) == 4


def test_the_least_recently_used_chain_is_evicted_first() -> None:
    manager = BlockManager(4, 4)
    old, new = [1, 1, 1, 1, 1], [2, 2, 2, 2, 2]
    finished(manager, old)
    finished(manager, new)
    finished(manager, old)
    computed(manager, [91, 92, 93, 94, 95])
    assert (found(manager, old), found(manager, new)) == (4, 0)


def test_blocks_written_twice_are_merged() -> None:
    manager = BlockManager(8, 4)
    first, second = sequence(TEN), sequence(TEN)
    for each in (first, second):
        manager.admit(each, manager.match(each))
    assert second.block_table == [3, 4, 5]
    for each in (first, second):
        manager.commit(each, 10)
    assert (first.block_table, second.block_table) == ([0, 1, 2], [0, 1, 5])
    assert manager.pool.num_shared == 2
    manager.check_integrity([first, second])


def test_a_fork_shares_all_blocks_and_copies_one_when_it_writes() -> None:
    manager = BlockManager(8, 4)
    parent, child = computed(manager, TEN), sequence([*TEN, 11])
    parent.token_ids.append(11)
    manager.fork(parent, child)
    assert child.block_table == parent.block_table == [0, 1, 2]
    copies = [*manager.grow(parent), *manager.grow(child)]
    assert copies == [(2, 3)]
    manager.release_sources(copies)
    assert (parent.block_table, child.block_table) == ([0, 1, 3], [0, 1, 2])
    manager.check_integrity([parent, child])


def test_release_is_idempotent() -> None:
    manager = BlockManager(8, 4)
    done = computed(manager, TEN)
    manager.release(done)
    manager.release(done)
    assert (manager.pool.num_used, manager.pool.num_cached) == (0, 3)


def test_a_tail_is_not_kept_when_it_may_be_half_written() -> None:
    manager = BlockManager(8, 4)
    manager.release(computed(manager, TEN), keep_tail=False)
    assert (manager.pool.num_cached, found(manager, TEN)) == (2, 8)


def test_a_pin_outlives_eviction_and_stays_under_its_cap() -> None:
    manager = BlockManager(8, 4, max_pinned_share=0.25)
    finished(manager, [*TEN, 11, 12])
    assert manager.pin("system", [*TEN, 11, 12]) == 8
    computed(manager, list(range(50, 74)))
    assert found(manager, [*TEN, 11, 12]) == 8
    manager.unpin("system")
    manager.unpin("system")
    computed(manager, [90])
    assert found(manager, TEN) == 4


def test_pinning_a_name_again_replaces_its_pin() -> None:
    manager = BlockManager(8, 4)
    finished(manager, TEN)
    finished(manager, [50, 51, 52, 53])
    manager.pin("system", TEN[:8])
    assert manager.pin("system", [50, 51, 52, 53]) == 4
    assert manager.num_pinned == 1


def test_another_fingerprint_finds_nothing_of_ours() -> None:
    ours, theirs = BlockManager(8, 4, fingerprint="a"), BlockManager(8, 4, fingerprint="b")
    computed(theirs, TEN)
    assert not ours.index.digests & theirs.index.digests
    computed(ours, TEN)
    assert not ours.index.digests & theirs.index.digests


def test_a_foreseen_block_is_hashed_once_and_found_only_when_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, batch = BlockManager(8, 4), Batch()
    coming = sequence(TEN)
    manager.admit(coming, manager.match(coming))
    batch.add(coming, len(TEN))
    for _ in range(2):
        manager.foresee(batch)
    assert (found(manager, TEN), len(coming.coming)) == (0, 2)
    with monkeypatch.context() as patch:
        patch.delattr(block_manager, "chain_digest")
        manager.commit(coming, len(TEN))
    assert (found(manager, TEN), coming.coming) == (8, [])
    manager.check_integrity([coming])


def test_what_was_foreseen_for_a_preempted_sequence_is_forgotten() -> None:
    manager, batch = BlockManager(8, 4), Batch()
    coming = sequence(TEN)
    manager.admit(coming, manager.match(coming))
    batch.add(coming, len(TEN))
    manager.foresee(batch)
    manager.release(coming, keep_tail=False)
    finished(manager, TEN[:4])
    manager.admit(coming, manager.match(coming))
    manager.commit(coming, len(TEN))
    manager.check_integrity([coming])


def test_without_prefix_caching_nothing_is_found_or_kept() -> None:
    manager = BlockManager(8, 4, enable_prefix_caching=False)
    finished(manager, TEN)
    assert (found(manager, TEN), manager.pool.num_free, manager.pin("system", TEN)) == (0, 8, 0)


def test_colliding_digests_never_share_the_wrong_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (block_manager, prefix_index):
        monkeypatch.setattr(module, "chain_digest", lambda parent, tokens: b"same")
    manager = BlockManager(16, 4)
    finished(manager, [1, 1, 1, 1, 5, 5, 5, 5, 7])
    finished(manager, [2, 2, 2, 2, 6, 6, 6, 6, 8])
    assert found(manager, [1, 1, 1, 1, 5, 5, 5, 5, 7]) == 4
    assert found(manager, [1, 1, 1, 1, 6, 6, 6, 6, 8]) == 4
    assert found(manager, [2, 2, 2, 2, 6, 6, 6, 6, 8]) == 0
