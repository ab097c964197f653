"""A disk in memory, which does what it was asked for when it is told to, and may lose and damage blocks."""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from functools import partial

from octavo_engine.disk_tier import BlockMemory, DiskTier
from octavo_engine.engine import Engine
from octavo_engine.sequence import Sequence
from octavo_engine.speeds import Speeds
from octavo_engine.stored_blocks import StoredBlock


class MemoryFiles:
    """See BlockFiles. What `lost` names is found to be damaged when it is read; `speeds` are given to each engine."""

    def __init__(self, bytes_per_s: float = 0.0, tokens_per_s: float = 0.0) -> None:
        self.blocks: dict[bytes, tuple[StoredBlock, bytearray]] = {}
        self.lost: set[bytes] = set()
        self.touched: list[bytes] = []
        self.pinned: set[bytes] = set()
        self.reads: list[list[StoredBlock]] = []
        self._speeds = bytes_per_s, tokens_per_s
        self._work: deque[Callable[[], None]] = deque()
        self._tier: DiskTier | None = None

    def attach(self, engine: Engine, memory: BlockMemory) -> None:
        """Begin a run: the engine knows all that lies here; what the last one asked for is forgotten."""
        self._work.clear()
        self._tier = engine.attach_disk(memory, self, Speeds(*self._speeds))
        for block, _ in self.blocks.values():
            self._tier.stored.add(block)

    @property
    def tier(self) -> DiskTier:
        assert self._tier is not None
        return self._tier

    def read(self, load: Sequence, blocks: SequenceOf[StoredBlock]) -> None:
        self.reads.append([*blocks])
        for block in blocks:
            self._work.append(partial(self._read, load, block))
        self._work.append(partial(self.tier.end, load))

    def keep(self, chain: SequenceOf[bytes], blocks: SequenceOf[StoredBlock]) -> None:
        self.touched += chain
        for block in blocks:
            self._work.append(partial(self._write, block))
        self._work.append(partial(self.tier.end_write, blocks))

    def pin(self, names: SequenceOf[bytes], is_pinned: bool) -> None:
        self.pinned = self.pinned.union(names) if is_pinned else self.pinned.difference(names)

    def serve(self, num_things: int = 10_000) -> None:
        """Do the next things."""
        for _ in range(min(num_things, len(self._work))):
            self._work.popleft()()

    def drop(self, name: bytes) -> None:
        """A block goes to make room."""
        self.blocks.pop(name, None)
        self.tier.stored.drop(name)

    def _read(self, load: Sequence, block: StoredBlock) -> None:
        if block.name in self.lost or block.name not in self.blocks:
            self.drop(block.name)
            self.tier.end(load)
        else:
            self.tier.deliver(load, self.blocks[block.name][1])

    def _write(self, block: StoredBlock) -> None:
        if (data := self.tier.snapshot(block)) is not None:
            self.lost.discard(block.name)
            self.blocks[block.name] = block, bytearray(data)
            self.tier.stored.add(block)
