"""The laws of the blocks, without tokens."""

import pytest

from octavo_engine.block_pool import BlockPool


def cached(pool: BlockPool, num_blocks: int) -> list[int]:
    """Take blocks and let them go with their content, in order."""
    blocks = [pool.take()[0] for _ in range(num_blocks)]
    for block in blocks:
        pool.release(block, keep=True)
    return blocks


def test_free_blocks_go_before_cached_ones() -> None:
    pool = BlockPool(3)
    assert cached(pool, 2) == [0, 1]
    assert pool.take() == (2, False)
    assert pool.take() == (0, True)


def test_cached_blocks_are_evicted_one_at_a_time_least_recently_used_first() -> None:
    pool = BlockPool(3)
    assert cached(pool, 3) == [0, 1, 2]
    pool.share(0)
    pool.release(0, keep=True)
    assert pool.take() == (1, True)
    assert (pool.num_free, pool.num_cached, pool.num_used) == (0, 2, 1)
    assert pool.take() == (2, True)
    assert pool.take() == (0, True)


def test_a_cached_block_that_is_touched_is_evicted_last() -> None:
    pool = BlockPool(3)
    assert cached(pool, 3) == [0, 1, 2]
    pool.share(1)
    for block in (0, 1, -1):
        pool.touch(block)
    assert [pool.take()[0], pool.take()[0]] == [2, 0]


def test_a_block_is_given_back_by_its_last_holder() -> None:
    pool = BlockPool(2)
    block, _ = pool.take()
    pool.share(block)
    assert (pool.num_shared, pool.num_used) == (1, 1)
    pool.release(block, keep=False)
    assert (pool.num_shared, pool.num_used) == (0, 1)
    pool.release(block, keep=False)
    assert (pool.num_free, pool.num_used) == (2, 0)


def test_a_revived_block_is_in_use_and_no_longer_evictable() -> None:
    pool = BlockPool(1)
    cached(pool, 1)
    pool.share(0)
    assert (pool.num_available, pool.ref_counts[0], pool.is_cached(0)) == (0, 1, False)


def test_a_second_release_is_our_bug() -> None:
    pool = BlockPool(1)
    block, _ = pool.take()
    pool.release(block, keep=False)
    with pytest.raises(AssertionError, match="block 0 is released more often than taken"):
        pool.release(block, keep=False)


def test_integrity_finds_a_holder_too_many_and_a_block_in_two_places() -> None:
    pool = BlockPool(2)
    pool.check_integrity([0, 0])
    with pytest.raises(AssertionError, match="ref counts"):
        pool.check_integrity([1, 0])
    pool._free.append(0)
    with pytest.raises(AssertionError, match="two places"):
        pool.check_integrity([0, 0])
