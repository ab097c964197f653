"""Decides what each step computes in one token budget: decoding rows first, then chunks of prompts."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf

from octavo_engine.batch import Batch
from octavo_engine.block_manager import BlockManager, Match
from octavo_engine.config import EngineConfig
from octavo_engine.errors import RequestRefusedError
from octavo_engine.prefix_index import common_prefix
from octavo_engine.sequence import Sequence, SequenceState
from octavo_engine.waiting import WaitingQueue

MAX_PARTIAL_PREFILLS = 4
"""Prompts that may be in the making beyond the budget of one step, so that a short one need not wait for a long one."""

MIN_SHARED_GAIN = 16
"""A prompt waits for another's prefix in the making when that saves it at least so many tokens."""


class Scheduler:
    """Holds all sequences that are not finished. `running` is in order of admission, the newest last."""

    def __init__(self, manager: BlockManager, config: EngineConfig, max_model_len: int) -> None:
        self.manager = manager
        self.max_model_len = max_model_len
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.waiting = WaitingQueue()
        self.running: list[Sequence] = []

    @property
    def has_work(self) -> bool:
        return bool(self.running or len(self.waiting))

    def check(self, num_prompt_tokens: int) -> None:
        """Raise RequestRefusedError for a prompt that could never run, with the three sizes in tokens."""
        pool = self.manager.pool.num_blocks * self.manager.block_size
        if num_prompt_tokens == 0:
            raise RequestRefusedError("the prompt is empty; it needs at least one token")
        if num_prompt_tokens >= self.max_model_len or num_prompt_tokens >= pool:
            raise RequestRefusedError(
                f"the prompt has {num_prompt_tokens} tokens and its reply needs room too; "
                f"the context holds {self.max_model_len} and the KV pool {pool}"
            )

    def add(self, sequence: Sequence) -> None:
        self.check(sequence.num_prompt)
        self.waiting.push(sequence)

    def schedule(self) -> tuple[Batch, list[Sequence], list[Sequence]]:
        """The next batch, the sequences admitted for it, and those that end now because the pool is full."""
        batch = Batch()
        overflowed = self._plan_decodes(batch)
        admitted = self._admit(batch)
        self._plan_prefills(batch)
        return batch, admitted, overflowed

    def advance(self, batch: Batch, next_ids: SequenceOf[int]) -> Iterator[tuple[Sequence, int]]:
        """Record a step that ran: KV becomes shareable, sampled ids are appended. Yields (sequence, sampled id)."""
        self.manager.release_sources(batch.copies)
        sampled = iter(next_ids)
        for sequence, num_tokens, samples in zip(batch.sequences, batch.query_lens, batch.samples, strict=True):
            self.manager.commit(sequence, sequence.num_computed + num_tokens)
            if samples:
                if sequence.num_computed == sequence.num_prompt:
                    self.manager.index_tail(sequence)
                token_id = next(sampled)
                sequence.token_ids.append(token_id)
                yield sequence, token_id

    def finish(self, sequence: Sequence, *, keep_tail: bool = True) -> None:
        """Take a sequence out for good; idempotent."""
        if sequence.state is SequenceState.RUNNING:
            self.running.remove(sequence)
        elif sequence.state is SequenceState.WAITING:
            self.waiting.remove(sequence)
        sequence.state = SequenceState.FINISHED
        self.manager.release(sequence, keep_tail=keep_tail)

    def fail(self, batch: Batch) -> None:
        """Record a step that raised: its sequences are over, and nothing that it may have written is indexed."""
        self.manager.release_sources(batch.copies)
        for sequence in batch.sequences:
            self.finish(sequence, keep_tail=False)

    def check_integrity(self) -> None:
        """Assert the laws of the blocks between two steps."""
        assert all(s.state is SequenceState.RUNNING for s in self.running)
        assert all(s.state is SequenceState.WAITING and not s.block_table for s in self.waiting)
        self.manager.check_integrity(self.running)

    def _plan_decodes(self, batch: Batch) -> list[Sequence]:
        overflowed: list[Sequence] = []
        for sequence in list(self.running):
            if sequence.num_uncomputed > 1 or sequence.state is not SequenceState.RUNNING:
                continue
            if self._make_room(sequence):
                batch.copies += self.manager.grow(sequence)
                batch.add(sequence, 1, self.manager.block_size)
            elif sequence.state is SequenceState.RUNNING:
                overflowed.append(sequence)
        return overflowed

    def _make_room(self, sequence: Sequence) -> bool:
        """Preempt from the newest on until `sequence` can grow; false when it was preempted itself or is alone."""
        while not self.manager.can_grow(sequence):
            victim = self.running[-1]
            if victim is sequence and len(self.running) == 1:
                return False
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.manager.release(sequence)
        sequence.state = SequenceState.WAITING
        self.waiting.push_front(sequence)

    def _admit(self, batch: Batch) -> list[Sequence]:
        admitted: list[Sequence] = []
        prefills = [s for s in self.running if s.num_uncomputed > 1]
        demand = batch.num_tokens + sum(s.num_uncomputed for s in prefills)
        for sequence in list(self.waiting) if len(self.running) < self.max_num_seqs else []:
            is_full = demand >= self.max_num_batched_tokens and len(prefills) >= MAX_PARTIAL_PREFILLS
            if is_full or len(self.running) >= self.max_num_seqs:
                break
            match = self._match(sequence)
            if _is_worth_waiting(sequence, match, prefills):
                continue
            if not self.manager.can_admit(sequence, match):
                break
            self._start(sequence, match, batch)
            admitted.append(sequence)
            prefills.append(sequence)
            demand += sequence.num_uncomputed
        return admitted

    def _match(self, sequence: Sequence) -> Match:
        match = self.manager.match(sequence)
        return match if self.manager.can_admit(sequence, match) else match.without_partial()

    def _start(self, sequence: Sequence, match: Match, batch: Batch) -> None:
        self.waiting.remove(sequence)
        batch.copies += self.manager.admit(sequence, match)
        sequence.state = SequenceState.RUNNING
        self.running.append(sequence)

    def _plan_prefills(self, batch: Batch) -> None:
        """Split what is left of the budget evenly; what a short prompt does not need goes to the longer ones."""
        planned = set(map(id, batch.sequences))
        prefills = sorted((s for s in self.running if id(s) not in planned), key=lambda s: s.num_uncomputed)
        budget = self.max_num_batched_tokens - batch.num_tokens
        for number, sequence in enumerate(prefills):
            share = min(sequence.num_uncomputed, budget // (len(prefills) - number))
            if share:
                batch.add(sequence, share, self.manager.block_size)
                budget -= share


def _is_worth_waiting(sequence: Sequence, match: Match, prefills: list[Sequence]) -> bool:
    """Whether a prompt in the making will soon hold much more of this one's prefix than the index does now."""
    usable = len(sequence.token_ids) - 1
    return any(
        min(common_prefix(sequence.token_ids, other.token_ids), usable) - match.num_tokens >= MIN_SHARED_GAIN
        for other in prefills
    )
