"""Decides what each step computes in one token budget: decoding rows first, then chunks of prompts."""

from bisect import insort
from itertools import chain
from operator import attrgetter

from octavo_engine.admission import Admission
from octavo_engine.batch import Batch, Said, StepOutput
from octavo_engine.block_manager import BlockManager
from octavo_engine.checks import check_length
from octavo_engine.config import DEFAULT_BATCHED_TOKENS, EngineConfig
from octavo_engine.disk_tier import DiskTier
from octavo_engine.plan import Plan, add_blocks_ahead, add_decodes, add_prefills, add_steps
from octavo_engine.prefix_index import Match
from octavo_engine.sequence import Sequence, SequenceState
from octavo_engine.step_limits import StepLimits
from octavo_engine.waiting import MIN_SHARED_GAIN, WaitingQueue

MAX_PARTIAL_PREFILLS = 4
"""Prompts that may be in the making beyond the budget of one step, so that a short one need not wait for a long one."""
PERSON = 0
"""The priority of a person's request; background work has larger numbers."""


class Scheduler:
    """Holds all sequences that are not finished.

    `running` is ordered by priority, then by admission: the last one is the first to be preempted, and a preempted
    one never has a row in the batch, since rows are planned from the front.
    """

    def __init__(self, manager: BlockManager, config: EngineConfig, max_model_len: int) -> None:
        self.manager = manager
        self.max_model_len = max_model_len
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS
        self.num_decode_steps = config.num_decode_steps or 1
        self.waiting = WaitingQueue()
        self.running: list[Sequence] = []
        self.disk: DiskTier | None = None
        self._admission = Admission(manager, self.running)
        self._limits = StepLimits(self.max_num_seqs, self.max_num_batched_tokens, manager.block_size)
        self._in_flight = Batch()  # empty when nothing is
        self._next = Plan()

    @property
    def has_work(self) -> bool:
        return bool(self.running or len(self.waiting) or self._in_flight.sequences)

    @property
    def awaits_disk(self) -> bool:
        """Whether nothing runs and blocks are on their way: a step has nothing to do before something else happens."""
        return not self.running and not self._in_flight.sequences and bool(self._loads)

    def check(self, num_prompt_tokens: int) -> None:
        """Raise RequestRefusedError for a prompt that could never run, with the three sizes in tokens."""
        check_length(num_prompt_tokens, self.max_model_len, self.manager.pool.num_blocks * self.manager.block_size)

    def add(self, sequence: Sequence) -> None:
        self.check(sequence.num_prompt)
        self.waiting.push(sequence)
        self._admission.expect(sequence, len(self.waiting))

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Add a child that goes on from all tokens of its parent; true if it runs at once on shared blocks.

        Otherwise it waits like any other request, and finds the parent's prefix in the index: also where the parent's
        last block is a copy that the step in flight has yet to make, which may fail.
        """
        self.check(child.num_prompt)
        is_ready = parent.state is SequenceState.RUNNING and parent.is_decoding
        is_being_copied = any(made in parent.block_table for _, made in self._in_flight.copies)
        if not is_ready or is_being_copied or self._is_full:
            self.waiting.push(child)
            return False
        self.manager.fork(parent, child)
        self._run(child)
        return True

    def schedule(self) -> Plan:
        """Plan the next step; an empty batch means that nothing can run now.

        A step that is not empty is in flight from here until `advance` or `fail` takes it in; until then none is
        planned, since planning gives blocks to others.
        """
        assert not self._in_flight.sequences, "a step is planned while another is in flight"
        plan, self._next = self._next, Plan()
        while len(self.running) > self._limits.num_rows:
            self._preempt(self.running[-1], plan)
        self._make_way(plan)
        decoding = [s for s in self.running if s.is_decoding]
        self._plan_decodes(plan, decoding)
        prefills = [s for s in self.running if not s.is_decoding]
        self._admit(plan, prefills)
        add_prefills(plan.batch, prefills, self._limits.num_tokens)
        add_steps(plan.batch, self.num_decode_steps, self.max_model_len, self.manager)
        add_blocks_ahead(plan.batch, self.manager)
        self._in_flight = plan.batch
        return plan

    def advance(self, batch: Batch, output: StepOutput) -> list[Said]:
        """Take in a step that was computed: its KV becomes shareable, its ids are appended, and who ends with one goes.

        A sequence that ended while the step ran leaves now, without its ids.
        """
        self._land(batch)
        self._limits.relax()
        said: list[Said] = []
        number, width = -1, sum(batch.samples)
        for sequence, num_tokens, samples in zip(batch.sequences, batch.query_lens, batch.samples, strict=True):
            number += samples
            if samples and sequence.state is not SequenceState.FINISHED:
                ids = sequence.take(output.token_ids[number::width])
                said.append((sequence, ids, output.logprobs[number::width]))
                num_tokens = len(sequence.token_ids) - 1 - sequence.num_computed
            self.manager.commit(sequence, sequence.num_computed + num_tokens)
            if samples and sequence.num_computed == sequence.num_prompt:
                self.manager.index_tail(sequence)
            if sequence.end or sequence.state is SequenceState.FINISHED:
                self.finish(sequence)
        return said

    def fail(self, batch: Batch) -> None:
        """Take in a step that raised: its sequences are over, and nothing that it may have written is indexed."""
        self._land(batch)
        for sequence in batch.sequences:
            self.manager.release(sequence, keep_tail=False)
            self.finish(sequence)

    def retry(self, batch: Batch) -> bool:
        """Take in a step that found no memory: it counts for nothing, the next are smaller; false where none can be.

        Rows that it should have begun with a copy wait again, since the copy may not have been made.
        """
        if not self._limits.shrink(batch):
            return False
        self._land(batch)
        copied = {made for _, made in batch.copies}
        for sequence in reversed(batch.sequences):
            if not copied.isdisjoint(sequence.block_table):
                self.manager.release(sequence, keep_tail=False)
                if sequence.state is SequenceState.RUNNING:
                    self._preempt(sequence, self._next)
            if sequence.state is SequenceState.FINISHED:
                self.finish(sequence)
        return True

    def _land(self, batch: Batch) -> None:
        assert batch is self._in_flight
        self._in_flight = Batch()
        self.manager.release_sources(batch.copies)

    def finish(self, sequence: Sequence) -> None:
        """Take a sequence out for good; idempotent. While a step in flight uses its blocks it keeps them."""
        if sequence.state is SequenceState.RUNNING:
            self.running.remove(sequence)
        elif sequence.state is SequenceState.WAITING:
            self.waiting.remove(sequence)
        sequence.state = SequenceState.FINISHED
        if sequence not in self._in_flight.sequences:
            if self.disk and sequence.is_kept:
                self.disk.save(sequence)
            self.manager.release(sequence)

    def check_integrity(self) -> None:
        """Assert the laws of the blocks, those of a step in flight included."""
        assert all(s.state is SequenceState.RUNNING for s in self.running)
        assert all(s.state is SequenceState.WAITING and not s.block_table for s in self.waiting)
        leaving = [s for s in self._in_flight.sequences if s.state is SequenceState.FINISHED]
        self.manager.check_integrity([*self.running, *leaving, *self._loads], self._in_flight.copies)

    @property
    def _loads(self) -> list[Sequence]:
        return self.disk.loads if self.disk else []

    @property
    def _is_full(self) -> bool:
        return len(self.running) >= self._limits.num_rows

    def _run(self, sequence: Sequence) -> None:
        sequence.state = SequenceState.RUNNING
        insort(self.running, sequence, key=attrgetter("priority"))

    def _make_way(self, plan: Plan) -> None:
        """Preempt background work, the newest first, while it holds the place or the blocks of a person's request."""
        first = next(iter(self.waiting), None)
        while first is not None and self.running and self.running[-1].priority > first.priority:
            prefills = [s for s in self.running if not s.is_decoding]
            if self._is_worth_waiting(first, prefills) or (not self._is_full and self._fits_now(first)):
                break
            self._preempt(self.running[-1], plan)

    def _fits_now(self, sequence: Sequence) -> bool:
        return self._admission.is_room(sequence, self._admission.match(sequence))

    def _plan_decodes(self, plan: Plan, decoding: list[Sequence]) -> None:
        rows = []
        for sequence in decoding:
            if sequence.state is not SequenceState.RUNNING:
                continue
            if not self.manager.grows_in_place(sequence):
                if not self._make_room(sequence, plan):
                    continue
                plan.batch.copies += self.manager.grow(sequence)
            rows.append(sequence)
        add_decodes(plan.batch, rows)

    def _make_room(self, sequence: Sequence, plan: Plan) -> bool:
        """Let `sequence` grow, whatever it takes; false when it was preempted itself or fills the pool.

        When no block is free or cached, background work is preempted first; then pins give way, which costs a prefill
        some day and nobody a pause; then the newest is preempted.
        """
        while not self.manager.can_grow(sequence):
            victim, is_alone = self.running[-1], len(self.running) == 1
            if self.disk and self.disk.give_way():
                continue
            if (is_alone or victim.priority <= PERSON) and self.manager.yield_pin():
                continue
            if is_alone:
                plan.overflowed.append(sequence)
                return False
            self._preempt(victim, plan)
            if victim is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence, plan: Plan) -> None:
        self.running.remove(sequence)
        self.manager.release(sequence)
        sequence.state = SequenceState.WAITING
        self.waiting.push_front(sequence)
        plan.preempted.append(sequence)

    def _admit(self, plan: Plan, prefills: list[Sequence]) -> None:
        """Start requests that wait, and append them to `prefills`. Nobody overtakes in a session of a name."""
        held: set[str] = set()
        for sequence in [] if self._is_full else list(self.waiting):
            if self.manager.num_blocks_for(len(sequence.token_ids)) > self.manager.pool.num_blocks:
                plan.overflowed.append(sequence)  # it filled the pool when it had to make way for a person
                continue
            if not self._can_begin_another(plan.batch, prefills) or self._admission.is_stalled(sequence):
                break
            if sequence.session in held:
                continue
            if self._is_worth_waiting(sequence, prefills):
                held |= {sequence.session} - {""}
                continue
            match = self._admission.match(sequence)
            if not self._can_start(sequence, match):
                self._admission.stall(sequence)
                break
            if self.disk and self.disk.fetch(sequence, match):
                held |= {sequence.session} - {""}
                continue
            self.waiting.remove(sequence)
            plan.batch.copies += self.manager.admit(sequence, match)
            self._run(sequence)
            plan.admitted.append(sequence)
            prefills.append(sequence)

    def _can_begin_another(self, batch: Batch, prefills: list[Sequence]) -> bool:
        """Whether one more prompt may start now.

        It gets a token in this very step, as EngineConfig leaves one for each running sequence: so its copies and its
        first row run together or fail together.
        """
        budget = self._limits.num_tokens - batch.num_tokens
        is_filled = sum(s.num_uncomputed for s in prefills) >= budget and len(prefills) >= MAX_PARTIAL_PREFILLS
        return not self._is_full and not is_filled

    def _is_worth_waiting(self, sequence: Sequence, prefills: list[Sequence]) -> bool:
        """Whether a prompt in the making will soon show all of this one's prefix, or much more than it shows now."""
        if self.disk and self.disk.is_loading_for(sequence):
            return True
        making = chain(prefills, self._loads)
        return self.manager.enable_prefix_caching and any(self._gains(sequence, other) for other in making)

    def _gains(self, sequence: Sequence, other: Sequence) -> bool:
        num_found = self.manager.num_findable(other)
        missing = len(sequence.token_ids) - 1 - num_found
        least = num_found + min(missing, MIN_SHARED_GAIN)
        if missing <= 0 or len(other.token_ids) < least:
            return False
        ours, theirs = sequence.token_ids, other.token_ids
        return ours[least - 1] == theirs[least - 1] and ours[:least] == theirs[:least]

    def _can_start(self, sequence: Sequence, match: Match) -> bool:
        """Whether the blocks can be had; pins give way before a request would wait for ever."""
        while not self._admission.is_room(sequence, match):
            if self.running or self._loads or not self.manager.yield_pin():
                return False
        return True
