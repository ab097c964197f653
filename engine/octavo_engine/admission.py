"""Whether a request that waits finds blocks to start with."""

from octavo_engine.block_manager import BlockManager
from octavo_engine.prefix_index import Match
from octavo_engine.sequence import Sequence

SPARE_TOKENS = 32
"""So much longer each running sequence gets before the one that was admitted last has to give its blocks back."""
SPARE_SHARE = 16
"""Blocks that are left for that are a 16th of the pool at most."""


class Admission:
    """Looks at the blocks for the scheduler, whose `running` list it holds; it gives none away."""

    def __init__(self, manager: BlockManager, running: list[Sequence]) -> None:
        self._manager, self._running = manager, running
        self._stalled: tuple[Sequence | None, int] = None, 0

    def match(self, sequence: Sequence) -> Match:
        """What the sequence finds computed; without the part of a block where there is no block to copy that to."""
        match = self._manager.match(sequence)
        return match if self.is_room(sequence, match) else match.without_partial()

    def is_room(self, sequence: Sequence, match: Match) -> bool:
        """Whether it may have its blocks now, without being preempted for those that run in the next steps."""
        return self._manager.can_admit(sequence, match, self._num_spare)

    def stall(self, sequence: Sequence) -> None:
        """It found too few blocks now."""
        self._stalled = sequence, self._num_usable

    def is_stalled(self, sequence: Sequence) -> bool:
        """Whether it found too few blocks before and none came back since: to match it again costs its whole length."""
        stalled, num_usable = self._stalled
        return sequence is stalled and bool(self._running) and self._num_usable <= num_usable

    def expect(self, sequence: Sequence, num_waiting: int) -> None:
        """Let what a request finds cached be evicted last, where the free blocks are too few for all that wait."""
        needed = self._manager.num_blocks_for(len(sequence.token_ids)) * num_waiting
        if num_waiting > 1 and needed > self._manager.pool.num_free:
            match = self._manager.match(sequence)
            for block in (match.partial_block, *reversed(match.blocks)):
                self._manager.pool.touch(block)

    @property
    def _num_spare(self) -> int:
        growing = len(self._running) * SPARE_TOKENS // self._manager.block_size
        return min(growing, self._manager.pool.num_blocks // SPARE_SHARE)

    @property
    def _num_usable(self) -> int:
        return self._manager.pool.num_available - self._num_spare
