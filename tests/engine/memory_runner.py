"""A model runner without a model: it remembers which token lies in which slot, and asserts that planning never lies."""

import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from functools import partial

from tests.engine.memory_files import MemoryFiles

from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.block_manager import BlockManager
from octavo_engine.checks import MAX_IDS
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.errors import DeviceMemoryError
from octavo_engine.events import Delta, Event, Finished
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
        for slot, token_id in zip(batch.slots(self._size), batch.token_ids, strict=True):
            self._memory[slot] = token_id
        for sequence, end in zip(batch.sequences, batch.context_lens, strict=True):
            assert self._gather(sequence, end) == sequence.token_ids[:end]
        sampling = [s for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples]
        ids = [self._next_id(s.token_ids, s.seed) for s in sampling]
        if batch.num_steps > 1:
            ids += self._go_on(sampling, ids, batch.num_steps - 1)
        return StepOutput([*ids, *ids][: len(ids) + order.num_extra])

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


@dataclass(slots=True)
class Outcome:
    """What the events said of one request."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finished: Finished | None = None


class Stage:
    """An engine over a MemoryRunner, its parts in reach, and the outcome of each request so far."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        num_decode_steps: int = 1,
        max_model_len: int = 1024,
        enable_prefix_caching: bool = True,
        max_pinned_share: float = 0.25,
        next_id: NextId = counted_id,
        vocabulary: int = MAX_IDS,
        decode: Callable[[SequenceOf[int]], str] | None = None,
        files: MemoryFiles | None = None,
        fingerprint: str = "memory",
    ) -> None:
        config = EngineConfig(
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            num_decode_steps=num_decode_steps,
        )
        self.manager = BlockManager(
            num_blocks,
            block_size,
            fingerprint=fingerprint,
            enable_prefix_caching=enable_prefix_caching,
            max_pinned_share=max_pinned_share,
        )
        self.scheduler = Scheduler(self.manager, config, max_model_len)
        self.runner = MemoryRunner(self.scheduler, next_id, vocabulary)
        self.engine = Engine(self.scheduler, self.runner, decode or spell, [END_ID])
        self.files = files
        if files:
            files.attach(self.engine, self.runner)
        self.events: list[Event] = []
        self.outcomes: dict[str, Outcome] = {}

    def add(
        self,
        request_id: str,
        token_ids: SequenceOf[int],
        max_tokens: int | None = 4,
        *,
        session: str = "",
        priority: int = 0,
        is_kept: bool = True,
    ) -> None:
        params = SamplingParams(max_tokens=max_tokens, seed=0)
        self.engine.add(request_id, token_ids, params, session=session, priority=priority, is_kept=is_kept)

    def step(self) -> list[Event]:
        """One step, after which every law of the blocks holds."""
        events = self.engine.step()
        self.engine.check_integrity()
        self.events += events
        for event in events:
            self._record(event)
        return events

    def run(self, max_steps: int = 10_000) -> dict[str, Outcome]:
        """Step until nothing is left."""
        while self.engine.has_work:
            max_steps -= 1
            assert max_steps, "the engine does not come to an end"
            if self.engine.awaits_disk:
                self.serve()
            self.step()
        return self.outcomes

    def serve(self) -> None:
        """Let the disk do all that it was asked for, and see that every law of the blocks still holds."""
        assert self.files is not None
        self.files.serve()
        self.engine.check_integrity()

    def usage(self, request_id: str) -> tuple[int, int]:
        """Cached and computed prompt tokens of a finished request."""
        finished = self.outcomes[request_id].finished
        assert finished is not None
        return finished.usage.cached_tokens, finished.usage.computed_tokens

    def reason(self, request_id: str) -> str:
        outcome = self.outcomes.get(request_id)
        return outcome.finished.stop_reason.value if outcome and outcome.finished else ""

    def _record(self, event: Event) -> None:
        outcome = self.outcomes.setdefault(event.request_id, Outcome())
        assert outcome.finished is None, f"{event} comes after the end"
        if isinstance(event, Delta):
            outcome.token_ids += event.token_ids
            outcome.text += event.text
        elif isinstance(event, Finished):
            assert "AssertionError" not in event.error, event.error  # the engine reports what the runner asserts
            outcome.finished = event


def spell(token_ids: SequenceOf[int]) -> str:
    """Id 1 is "a", 2 is "b"; the end token has no text."""
    return "".join(chr(96 + i % 26) for i in token_ids if i != END_ID)
