"""Blocks that outlive the pool: those that a prompt waits for instead of computing them, and those worth keeping."""

import logging
from collections.abc import Sequence as SequenceOf
from typing import Protocol
from weakref import WeakSet

from octavo_engine.block_manager import BlockManager
from octavo_engine.params import SamplingParams
from octavo_engine.prefix_index import Match, chain_digest, common_prefix
from octavo_engine.sequence import Sequence
from octavo_engine.speeds import Speeds
from octavo_engine.stored_blocks import StoredBlock, StoredBlocks, chain_blocks
from octavo_engine.waiting import MIN_SHARED_GAIN

log = logging.getLogger(__name__)
Bytes = bytes | bytearray | memoryview


class BlockMemory(Protocol):
    """The bytes of the pool's blocks, `block_bytes` each; used between two steps, in the engine's thread."""

    block_bytes: int

    def read(self, block: int) -> Bytes:
        """A copy of a block's bytes."""
        ...

    def write(self, block: int, data: bytearray) -> None:
        """Fill a block."""
        ...


class BlockFiles(Protocol):
    """Where blocks lie while there is no pool. Every call returns at once.

    The work is done in other threads; what comes of it is told to the DiskTier between two steps.
    """

    def read(self, load: Sequence, blocks: SequenceOf[StoredBlock]) -> None:
        """Read these blocks, in order; answered by `deliver` and at the end by `end`."""
        ...

    def keep(self, chain: SequenceOf[bytes], blocks: SequenceOf[StoredBlock]) -> None:
        """All blocks of a chain were used, and these of them are to be written; their bytes are got by `snapshot`.

        Answered by `stored.add` and at the end by `end_write`.
        """
        ...

    def pin(self, names: SequenceOf[bytes], is_pinned: bool) -> None:
        """Let these blocks go last, or no longer."""
        ...


class DiskTier:
    """What the scheduler asks for a prompt's blocks before it computes them.

    A load is a sequence whose KV is not computed but read. So its blocks are taken, indexed and given back like those
    of a prompt in the making, and whoever wants the same prefix, the request that it is for among them, waits for it as
    for any other. All of it is called in the engine's thread.
    """

    def __init__(self, manager: BlockManager, memory: BlockMemory, files: BlockFiles, speeds: Speeds) -> None:
        self.speeds = speeds
        self._loads: dict[Sequence, Sequence] = {}  # and the request that each was begun for
        self.stored = StoredBlocks(manager.block_size)
        self._manager = manager
        self._memory = memory
        self._files = files
        self._asked: WeakSet[Sequence] = WeakSet()
        self._being_written: set[bytes] = set()
        self._pins: dict[str, list[bytes]] = {}
        self._was_worth_it = True

    @property
    def block_bytes(self) -> int:
        """The size of a block."""
        return self._memory.block_bytes

    @property
    def root(self) -> bytes:
        """The parent of every first block: it names the model, its dtype and the layout of its blocks."""
        return self._manager.index.root

    # ---- from disk into the pool ----

    @property
    def loads(self) -> list[Sequence]:
        """Those that are on their way."""
        return [*self._loads]

    def is_loading_for(self, sequence: Sequence) -> bool:
        """Whether a load that was begun for this request is on its way."""
        return sequence in self._loads.values()

    def is_on_its_way(self, load: Sequence) -> bool:
        """Whether somebody still waits for a load; may be asked from any thread."""
        return load in self._loads

    def fetch(self, sequence: Sequence, match: Match) -> bool:
        """Begin to load what the disk has of a prompt beyond its match in the pool; false if there is nothing to gain.

        A prompt is looked up once: where its blocks are evicted again before it runs, it is computed.
        """
        if sequence in self._asked:
            return False
        self._asked.add(sequence)
        blocks = self._find(sequence, match)
        load = _load(sequence, len(match.blocks) * self._manager.block_size, blocks)
        gain, whole = _gain(sequence, match, load), match.without_partial()
        if not gain or not self._manager.can_admit(load, whole) or not self._is_faster(blocks, gain):
            return False
        self._manager.admit(load, whole)
        load.num_cached = load.num_computed
        self._loads[load] = sequence
        self._files.read(load, blocks)
        return True

    def deliver(self, load: Sequence, data: bytearray) -> None:
        """The bytes of a load's next block are there; nothing happens if it has given way."""
        if load in self._loads:
            size = self._manager.block_size
            number = load.num_computed // size
            self._memory.write(load.block_table[number], data)
            self._manager.commit(load, min((number + 1) * size, len(load.token_ids)))

    def end(self, load: Sequence) -> None:
        """A load is over, whole or not: what came of it is left to whoever finds it in the index."""
        if self._loads.pop(load, None):
            self._manager.release(load)

    def give_way(self) -> bool:
        """Give up a load, the newest, for a request that runs and needs its blocks; false without one."""
        if not self._loads:
            return False
        self.end(self.loads[-1])
        return True

    # ---- from the pool to the disk ----

    def save(self, sequence: Sequence) -> None:
        """Have the computed blocks of a sequence kept that are not yet; called before its blocks are given back."""
        names = [*sequence.digests]
        blocks = [self._block(sequence, number) for number in range(len(names)) if self._is_new(names[number])]
        if (tail := self._tail(sequence)) is not None:
            names.append(tail.name)
            blocks += [tail] if self._is_new(tail.name) else []
        self._keep(names, blocks)

    def pin(self, name: str, token_ids: SequenceOf[int]) -> None:
        """Have the blocks of these tokens, which are computed, kept and go last."""
        self.unpin(name)
        blocks = chain_blocks(self.root, token_ids, self._manager.block_size)
        names = self._pins[name] = [block.name for block in blocks]
        self._keep(names, [block for block in blocks if self._is_new(block.name)])
        self._files.pin(names, True)

    def unpin(self, name: str) -> None:
        """Let blocks go like others, unless another pin holds them; unknown names are ignored."""
        names = self._pins.pop(name, [])
        held = {block for pinned in self._pins.values() for block in pinned}
        if rest := [block for block in names if block not in held]:
            self._files.pin(rest, False)

    def snapshot(self, block: StoredBlock) -> Bytes | None:
        """The bytes of a block that is to be written; None when it has left the pool."""
        index = self._manager.index
        if len(block.tokens) == self._manager.block_size:
            number = index.find(block.parent, block.tokens, block.name)
            return None if number is None else self._memory.read(number)
        number, length = index.find_partial(block.parent, block.tokens)
        return self._memory.read(number) if length == len(block.tokens) else None

    def end_write(self, blocks: SequenceOf[StoredBlock]) -> None:
        """A write is over, whether these blocks lie there now or not."""
        self._being_written.difference_update(block.name for block in blocks)

    # ---- the machinery ----

    def _find(self, sequence: Sequence, match: Match) -> list[StoredBlock]:
        parent = match.digests[-1] if match.digests else self.root
        start = len(match.blocks) * self._manager.block_size
        return self.stored.chain(parent, sequence.token_ids, start, len(sequence.token_ids) - 1)

    def _is_faster(self, blocks: SequenceOf[StoredBlock], num_tokens: int) -> bool:
        num_bytes = len(blocks) * self._memory.block_bytes
        is_faster = self.speeds.is_loading_faster(num_bytes, num_tokens)
        verb = "loading" if is_faster else "computing instead of loading"
        log.info("disk: %s %d blocks: %s", verb, len(blocks), self.speeds.compare(num_bytes, num_tokens))
        return is_faster

    def _keep(self, chain: SequenceOf[bytes], blocks: SequenceOf[StoredBlock]) -> None:
        """Have a chain's new blocks written, unless they would be computed sooner than read."""
        size, num_bytes = self._manager.block_size, self._memory.block_bytes
        is_worth_it = self.speeds.is_loading_faster(num_bytes, size)
        if blocks and not is_worth_it and self._was_worth_it:
            log.info("disk: blocks are not written: for one it is %s", self.speeds.compare(num_bytes, size))
        self._was_worth_it = is_worth_it
        new = blocks if is_worth_it else []
        self._being_written.update(block.name for block in new)
        if chain:
            self._files.keep(chain, new)

    def _is_new(self, name: bytes) -> bool:
        return name not in self.stored and name not in self._being_written

    def _block(self, sequence: Sequence, number: int) -> StoredBlock:
        size, digests = self._manager.block_size, sequence.digests
        tokens = tuple(sequence.token_ids[number * size : (number + 1) * size])
        return StoredBlock(digests[number], digests[number - 1] if number else self.root, tokens, number)

    def _tail(self, sequence: Sequence) -> StoredBlock | None:
        """The computed part of the last block, if there is one that is not full."""
        number, size = len(sequence.digests), self._manager.block_size
        tokens = tuple(sequence.token_ids[number * size : sequence.num_computed])
        if not 0 < len(tokens) < size:
            return None
        parent = sequence.digests[-1] if sequence.digests else self.root
        return StoredBlock(chain_digest(parent, tokens), parent, tokens, number)


def _load(sequence: Sequence, start: int, blocks: SequenceOf[StoredBlock]) -> Sequence:
    """A sequence of the tokens that these blocks and those before them hold."""
    token_ids = sequence.token_ids[:start]
    for block in blocks:
        token_ids += block.tokens
    return Sequence(f"load for {sequence.request_id}", token_ids, SamplingParams())


def _gain(sequence: Sequence, match: Match, load: Sequence) -> int:
    """How many tokens a load saves the request beyond its match; 0 where the request would not wait for so few."""
    gain = common_prefix(load.token_ids, sequence.token_ids[:-1]) - match.num_tokens
    missing = len(sequence.token_ids) - 1 - match.num_tokens
    return gain if gain >= min(missing, MIN_SHARED_GAIN) else 0
