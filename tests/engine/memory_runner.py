"""A model runner without a model: it remembers which token lies in which slot, and asserts that planning never lies."""

import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from functools import partial

from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.checks import MAX_IDS
from octavo_engine.errors import DeviceMemoryError
from octavo_engine.params import SamplingParams
from octavo_engine.scheduler import Scheduler
from octavo_engine.sequence import Sequence

END_ID = 0
VOCABULARY = 6
GARBAGE = -1
ROW_BYTES = 16
TOKEN_BYTES = 4
TOLD_TO_FAIL = "this step was told to fail"
NextId = Callable[[SequenceOf[int], int], int]


def hashed_id(token_ids: SequenceOf[int], seed: int) -> int:
    """The next id, a function of all ids so far and the seed alone: no sharing or preemption may change a reply."""
    return zlib.crc32(repr((list(token_ids), seed)).encode()) % VOCABULARY


def counted_id(token_ids: SequenceOf[int], seed: int) -> int:
    """Ids that count on from the last one, so that an eye can check a reply: 7 is followed by 8, 9, 10."""
    return token_ids[-1] + 1


@dataclass(frozen=True, slots=True)
class Step:
    """What one step was asked: the request of each row, its tokens, the copies before them, and how often."""

    rows: tuple[str, ...]
    query_lens: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]
    num_steps: int


@dataclass(frozen=True, slots=True)
class Order:
    """What a batch asked for at its launch, taken down, since nobody may change it before it is computed."""

    batch: Batch
    tables: list[list[int]]
    lengths: list[int]
    fails: str
    num_extra: int


class MemoryRunner:
    """Executes batches on a list of token ids, one a slot, all of it in `wait`: the slots, tables and ids of a step
    must be as they were at its launch.

    `fails` says how the next launched step goes wrong, if it does: at its "launch", "before" anything was done, or
    "halfway", with no copy made and garbage in every slot. `num_extra` ids too many are given, or too few. A step of
    more than `num_bytes`, ROW_BYTES a row and TOKEN_BYTES a token, finds no memory, halfway too.
    """

    def __init__(self, scheduler: Scheduler, next_id: NextId, vocabulary: int = MAX_IDS) -> None:
        self._scheduler = scheduler
        self._manager = scheduler.manager
        self._size = scheduler.manager.block_size
        self._next_id = next_id
        self._memory = array("q", [GARBAGE] * (scheduler.manager.pool.num_blocks * self._size))
        self.block_bytes = self._size * self._memory.itemsize
        self.steps: list[Step] = []
        self.num_computed = 0
        self.fails = ""
        self.num_extra = 0
        self.num_bytes = sys.maxsize
        self.vocabulary = vocabulary

    def check(self, params: SamplingParams) -> None:
        pass

    def launch(self, batch: Batch) -> PendingStep:
        assert self.num_computed == len(self.steps), "a step is launched while another is in flight"
        rows = tuple(s.request_id for s in batch.sequences)
        self.steps.append(Step(rows, tuple(batch.query_lens), tuple(batch.copies), batch.num_steps))
        self._check_plan(batch)
        fails, self.fails = self.fails, ""
        if fails == "launch":
            self.num_computed += 1
            raise RuntimeError(TOLD_TO_FAIL)
        tables = [list(s.block_table) for s in batch.sequences]
        lengths = [len(s.token_ids) for s in batch.sequences]
        return PendingStep(partial(self._compute, Order(batch, tables, lengths, fails, self.num_extra)))

    def _compute(self, order: Order) -> StepOutput:
        self.num_computed += 1
        batch = order.batch
        self._check_unchanged(order)
        num_bytes = ROW_BYTES * len(batch.sequences) + TOKEN_BYTES * batch.num_tokens
        if order.fails or num_bytes > self.num_bytes:
            self._fail(order, num_bytes)
        self._copy(batch.copies)
        ids = self._ids(batch)
        return StepOutput([*ids, *ids][: len(ids) + order.num_extra])

    def _ids(self, batch: Batch) -> list[int]:
        """What each row says, step after step, over what lies in its slots."""
        for slot, token_id in zip(batch.slots(self._size), batch.token_ids, strict=True):
            self._memory[slot] = token_id
        for sequence, end in zip(batch.sequences, batch.context_lens, strict=True):
            assert self._gather(sequence, end) == sequence.token_ids[:end]
        sampling = [s for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples]
        ids = [self._next_id(s.token_ids, s.seed) for s in sampling]
        if batch.num_steps > 1:
            ids += self._go_on(sampling, ids, batch.num_steps - 1)
        return ids

    def read(self, block: int) -> bytes:
        """See BlockMemory."""
        return self._memory[block * self._size : (block + 1) * self._size].tobytes()

    def write(self, block: int, data: bytearray) -> None:
        """See BlockMemory: like a slot, a block is written by one who alone holds it, and before it is indexed."""
        assert len(data) == self.block_bytes
        assert self._manager.pool.ref_counts[block] == 1
        assert block not in self._manager.index
        self._memory[block * self._size : (block + 1) * self._size] = array("q", data)

    def _go_on(self, sequences: SequenceOf[Sequence], newest: SequenceOf[int], num_steps: int) -> list[int]:
        """The ids of further steps, in which each sequence computes the id that the step before gave it."""
        said = {s.request_id: [*s.token_ids, token_id] for s, token_id in zip(sequences, newest, strict=True)}
        ids = []
        for _ in range(num_steps):
            for sequence in sequences:
                tokens = said[sequence.request_id]
                number, offset = divmod(len(tokens) - 1, self._size)
                self._memory[sequence.block_table[number] * self._size + offset] = tokens[-1]
                assert self._gather(sequence, len(tokens)) == tokens
                tokens.append(self._next_id(tokens, sequence.seed))
                ids.append(tokens[-1])
        return ids

    def _check_plan(self, batch: Batch) -> None:
        assert batch.num_tokens == sum(batch.query_lens) <= self._scheduler.max_num_batched_tokens
        assert len(batch.sequences) <= self._scheduler.max_num_seqs
        decoding = [s.is_decoding for s in batch.sequences]
        assert decoding == sorted(decoding, reverse=True)
        assert max(batch.context_lens) + batch.num_steps - 1 <= self._scheduler.max_model_len
        assert len({destination for _, destination in batch.copies}) == len(batch.copies)
        for sequence, position in written(batch):
            block, offset = sequence.block_table[position // self._size], position % self._size
            assert [s for s in self._scheduler.running if block in s.block_table] == [sequence]
            assert self._manager.index.num_tokens(block) <= offset
        used = {block for s in batch.sequences for block in s.block_table}
        for _, destination in batch.copies:  # whoever needs a copy is in the batch, so that it fails with the copy
            assert destination in used
            assert destination not in self._manager.index

    def _check_unchanged(self, order: Order) -> None:
        """While a step runs its blocks are held and its tables stay; what it writes nobody reads, nobody promises."""
        batch, ref_counts = order.batch, self._manager.pool.ref_counts
        assert order.tables == [s.block_table for s in batch.sequences]
        assert order.lengths == [len(s.token_ids) for s in batch.sequences]
        used = {block for table in order.tables for block in table} | {source for source, _ in batch.copies}
        assert all(ref_counts[block] for block in used), "a block was given back while a step used it"
        for sequence, position in written(batch):
            number, offset = divmod(position, self._size)
            block = sequence.block_table[number]
            assert self._manager.index.num_tokens(block) <= offset
            others = [s for s in self._scheduler.running if s is not sequence and block in s.block_table]
            assert all(s.block_table[number] == block and s.num_computed <= position for s in others)

    def _copy(self, copies: Iterable[tuple[int, int]]) -> None:
        size = self._size
        contents = [(to, self._memory[source * size : (source + 1) * size]) for source, to in copies]
        for to, content in contents:
            self._memory[to * size : (to + 1) * size] = content

    def _gather(self, sequence: Sequence, end: int) -> list[int]:
        size, table = self._size, sequence.block_table
        return [self._memory[table[p // size] * size + p % size] for p in range(end)]

    def _fail(self, order: Order, num_bytes: int) -> None:
        if order.fails != "before":
            for slot in order.batch.slots(self._size):
                self._memory[slot] = GARBAGE
        if not order.fails:
            raise DeviceMemoryError(f"{num_bytes} bytes asked for, {self.num_bytes} free")
        raise RuntimeError(TOLD_TO_FAIL)


def written(batch: Batch) -> Iterator[tuple[Sequence, int]]:
    """The positions that a batch writes, all its steps together."""
    for sequence, length, end in zip(batch.sequences, batch.query_lens, batch.context_lens, strict=True):
        for position in range(end - length, end + batch.num_steps - 1):
            yield sequence, position
