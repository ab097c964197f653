"""The blocks of the KV pool: each is free, cached (its content is known, nobody uses it) or in use by ref count."""

from collections import OrderedDict, deque


class BlockPool:
    """Hands out block numbers; knows nothing of tokens.

    A cached block stays until it is needed: `take` gives truly free blocks first and then evicts the least recently
    used cached one, a single block at a time. An OrderedDict gives O(1) for all three moves (append at release,
    remove from the middle at a hit, pop the oldest at an eviction) without an intrusive list of our own.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = deque(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self.ref_counts = [0] * num_blocks  # holders of each block; only this class writes it
        self.num_shared = 0  # blocks in use by two holders or more

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `take` can give now."""
        return len(self._free) + len(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_available

    def is_cached(self, block: int) -> bool:
        return block in self._cached

    def take(self) -> tuple[int, bool]:
        """A block with ref count 1, and whether cached content was evicted for it. The caller checked availability."""
        is_evicted = not self._free
        block = self._cached.popitem(last=False)[0] if is_evicted else self._free.popleft()
        assert self.ref_counts[block] == 0
        self.ref_counts[block] = 1
        return block, is_evicted

    def share(self, block: int) -> None:
        """One more holder of a block that is cached or in use."""
        if self.ref_counts[block] == 0:
            del self._cached[block]
        self.ref_counts[block] += 1
        self.num_shared += self.ref_counts[block] == 2

    def release(self, block: int, *, keep: bool) -> None:
        """One holder less; the last one leaves the block cached as most recently used (`keep`) or free."""
        assert self.ref_counts[block] > 0, f"block {block} is released more often than taken"
        self.ref_counts[block] -= 1
        self.num_shared -= self.ref_counts[block] == 1
        if self.ref_counts[block] == 0:
            if keep:
                self._cached[block] = None
            else:
                self._free.append(block)

    def touch(self, block: int) -> None:
        """Let a cached block be evicted last; any other number is ignored."""
        if block in self._cached:
            self._cached.move_to_end(block)

    def drop(self, block: int) -> None:
        """A cached block becomes free: its content is no longer wanted."""
        del self._cached[block]
        self._free.append(block)

    def check_integrity(self, holders: list[int]) -> None:
        """Assert that the counts equal `holders` (recounted by the caller) and that every block is in one place."""
        assert holders == self.ref_counts, "ref counts differ from the holders"
        assert self.num_shared == sum(count > 1 for count in holders)
        places = [*self._free, *self._cached, *(b for b, count in enumerate(holders) if count)]
        assert sorted(places) == list(range(self.num_blocks)), "a block is lost or in two places"
