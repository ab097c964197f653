"""The engine: requests in, events out, one step at a time. Not thread-safe: one thread calls all of it."""

import logging
import random
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from itertools import repeat

from octavo_engine.batch import Batch, ModelRunner
from octavo_engine.checks import check_fork, check_ids, check_output, num_ids
from octavo_engine.detokenizer import Decode, find_spoiler
from octavo_engine.disk_tier import BlockFiles, BlockMemory, DiskTier
from octavo_engine.errors import RequestRefusedError
from octavo_engine.events import Delta, Event, Finished, Preempted, Started, StopReason, TokenLogprobs
from octavo_engine.params import SamplingParams
from octavo_engine.reply_text import ReplyText
from octavo_engine.request import Request
from octavo_engine.scheduler import Scheduler
from octavo_engine.sequence import Sequence
from octavo_engine.speeds import Speeds

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counts:
    """Blocks by state and requests by state.

    Of the used blocks, `shared` have two holders or more and `pinned` belong to pinned prefixes.
    """

    total: int
    free: int
    cached: int
    used: int
    shared: int
    pinned: int
    running: int
    waiting: int


class Engine:
    """Joins a scheduler, a model runner and a tokenizer's `decode`; `stop_ids` are the model's end-of-turn tokens."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        decode: Decode,
        stop_ids: SequenceOf[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._num_ids = num_ids(runner)
        self._decode = decode
        self._spoiler = find_spoiler(decode)
        self._stop_ids = frozenset(stop_ids)
        self._clock = clock
        self._requests: dict[str, Request] = {}
        self._aborted: dict[str, None] = {}  # in the order of the calls
        self._pending: list[Event] = []
        self._disk: DiskTier | None = None

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return self._scheduler.has_work

    @property
    def awaits_disk(self) -> bool:
        """Whether its work has to wait for blocks from disk: until something else is done here a step does nothing."""
        return self._scheduler.awaits_disk

    def attach_disk(self, memory: BlockMemory, files: BlockFiles, speeds: Speeds) -> DiskTier:
        """Keep blocks in `files` from now on, and look for prompts there; the tier is how `files` answers."""
        self._disk = self._scheduler.disk = DiskTier(self._scheduler.manager, memory, files, speeds)
        return self._disk

    def check(self, token_ids: SequenceOf[int], params: SamplingParams) -> None:
        """Raise what `add` would raise for such a request, without adding anything."""
        self._runner.check(params)
        self._scheduler.check(len(token_ids))
        check_ids(token_ids, self._num_ids)

    def add(
        self,
        request_id: str,
        token_ids: SequenceOf[int],
        params: SamplingParams,
        *,
        session: str = "",
        priority: int = 0,
        is_kept: bool = True,
    ) -> None:
        """Queue a request; its events come from later steps.

        Requests of one `session` are served in order, those of different sessions in turn; lower `priority` numbers
        first (background work asks for 1). With `params.n` above 1 the further replies have the ids of `reply_ids`,
        and seeds that count on from the first one's. With `is_kept` false none of its blocks is written to disk.
        Raises RequestRefusedError with the sizes in tokens or the range of ids, or ParameterError for what the model
        cannot do.
        """
        self.check(token_ids, params)
        seed = random.getrandbits(63) if params.seed is None else params.seed
        for number, reply_id in enumerate(reply_ids(request_id, params.n)):
            sequence = self._sequence(reply_id, token_ids, params, (seed + number) % 2**63, session, priority)
            self._scheduler.add(sequence)
            self._open(sequence, is_kept=is_kept)

    def fork(self, request_id: str, fork_id: str, params: SamplingParams | None = None) -> None:
        """Go on from all tokens of an unfinished request a second time, on the same blocks.

        The tokens so far are the fork's prompt: limits, penalties and stop strings count its own reply alone. Without
        `params` it has the parent's and a seed of its own, which follows from the parent's; with `params`, their seed.
        Raises RequestRefusedError for an unknown request and where the tokens leave no room to go on, ParameterError
        for `n` above 1 and for a json_schema whose reply the parent has begun.
        """
        if request_id not in self._requests:
            raise RequestRefusedError(f"request {request_id!r} is unknown or finished; only an unfinished one forks")
        parent, params = self._requests[request_id], params or self._fork_params(request_id)
        check_fork(parent.sequence, params)
        self._runner.check(params)
        seed = random.getrandbits(63) if params.seed is None else params.seed
        sequence = parent.sequence
        child = self._sequence(fork_id, sequence.token_ids, params, seed, sequence.session, sequence.priority)
        is_running = self._scheduler.fork(sequence, child)
        self._open(child, is_kept=parent.is_kept)
        if is_running:
            self._pending.append(self._start(child))

    def _fork_params(self, request_id: str) -> SamplingParams:
        """The parent's parameters, for one reply, with a seed that no other fork of it has."""
        parent = self._requests[request_id]
        parent.num_forks += 1
        seed = random.Random(f"{parent.sequence.seed} {parent.num_forks}").getrandbits(63)
        return replace(parent.sequence.params, n=1, seed=seed)

    def pin(self, name: str, token_ids: SequenceOf[int]) -> int:
        """Keep the computed part of a prefix from eviction, up to `max_pinned_share`; returns how many tokens.

        On disk it is kept too, and goes last, after this engine has ended as well.
        """
        num_tokens = self._scheduler.manager.pin(name, list(token_ids))
        if self._disk:
            self._disk.pin(name, token_ids[:num_tokens])
        return num_tokens

    def unpin(self, name: str) -> None:
        """Let a pinned prefix go; unknown names are ignored."""
        self._scheduler.manager.unpin(name)
        if self._disk:
            self._disk.unpin(name)

    def clear_cache(self) -> None:
        """Forget every computed prefix that nobody uses or pins; the next prompts are cold."""
        self._scheduler.manager.clear_cache()

    def abort(self, request_id: str) -> None:
        """Mark a request; the next step ends it. Unknown and finished ids are ignored."""
        if request_id in self._requests:
            self._aborted[request_id] = None

    def step(self) -> list[Event]:
        """Run one batch and tell what happened to each request in it."""
        events = [*self._pending, *self._sweep_aborted()]
        self._pending.clear()
        plan = self._scheduler.schedule()
        events += [Preempted(sequence.request_id) for sequence in plan.preempted]
        events += [self._start(s) for s in plan.admitted if not self._requests[s.request_id].started_at]
        events += self._finish_all(plan.overflowed, StopReason.KV_FULL)
        return events + self._run(plan.batch) if plan.batch.sequences else events

    def counts(self) -> Counts:
        """Blocks and requests at this moment."""
        pool, scheduler = self._scheduler.manager.pool, self._scheduler
        return Counts(
            total=pool.num_blocks,
            free=pool.num_free,
            cached=pool.num_cached,
            used=pool.num_used,
            shared=pool.num_shared,
            pinned=scheduler.manager.num_pinned,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
        )

    def check_integrity(self) -> None:
        """Assert the laws of the blocks; cheap enough for every idle moment."""
        self._scheduler.check_integrity()
        held = [*self._scheduler.running, *self._scheduler.waiting]
        assert {id(s) for s in held} == {id(r.sequence) for r in self._requests.values()}, "a request is lost"

    def _sequence(
        self,
        request_id: str,
        token_ids: SequenceOf[int],
        params: SamplingParams,
        seed: int,
        session: str,
        priority: int,
    ) -> Sequence:
        assert request_id not in self._requests, f"request id {request_id!r} is taken"
        own_ids = frozenset() if params.ignore_eos else self._stop_ids
        stop_ids = own_ids.union(params.stop_token_ids)
        return Sequence(request_id, token_ids, params, seed=seed, session=session, priority=priority, stop_ids=stop_ids)

    def _open(self, sequence: Sequence, *, is_kept: bool) -> None:
        params, room = sequence.params, self._scheduler.max_model_len
        most = room if params.max_tokens is None else min(room, sequence.num_prompt + params.max_tokens)
        text = ReplyText(self._decode, params.stop, self._spoiler)
        least = sequence.num_prompt + params.min_tokens
        self._requests[sequence.request_id] = Request(sequence, text, least, most, self._clock(), is_kept)

    def _sweep_aborted(self) -> list[Event]:
        aborted = [self._requests[request_id].sequence for request_id in self._aborted if request_id in self._requests]
        self._aborted.clear()
        return self._finish_all(aborted, StopReason.ABORTED)

    def _start(self, sequence: Sequence) -> Started:
        self._requests[sequence.request_id].started_at = self._clock()
        sequence.num_cached = sequence.num_computed
        return Started(sequence.request_id, sequence.num_cached)

    def _run(self, batch: Batch) -> list[Event]:
        try:
            output = self._runner.run(batch)
            check_output(batch, output)
        except Exception as error:  # a border: one bad step must not take the other chats along
            log.exception("a step of %d rows failed", len(batch.sequences))
            self._scheduler.fail(batch)
            return self._finish_all(batch.sequences, StopReason.FAILED, repr(error))
        logprobs = output.logprobs or repeat(None)
        events: list[Event] = []
        for (sequence, token_id), entry in zip(
            self._scheduler.advance(batch, output.token_ids), logprobs, strict=False
        ):
            self._receive(sequence, token_id, entry, events)
        return events

    def _receive(self, sequence: Sequence, token_id: int, logprobs: TokenLogprobs | None, events: list[Event]) -> None:
        """Tell of one sampled id. The text of an id that ends the reply is left out, as a stop string is."""
        request = self._requests[sequence.request_id]
        if not request.first_token_at:
            request.first_token_at = self._clock()
        num_tokens = len(sequence.token_ids)
        can_stop = num_tokens >= request.least
        is_stop_id = can_stop and token_id in sequence.stop_ids
        text = "" if is_stop_id else request.text.add((token_id,), can_stop=can_stop)
        events.append(Delta(sequence.request_id, text, (token_id,), (logprobs,) if logprobs else ()))
        if is_stop_id or request.text.is_stopped:
            events += self._finish(sequence, StopReason.STOP)
        elif num_tokens >= request.most or request.text.error:
            events += self._finish(sequence, StopReason.LENGTH)

    def _finish_all(self, sequences: SequenceOf[Sequence], reason: StopReason, error: str = "") -> list[Event]:
        return [event for sequence in sequences for event in self._finish(sequence, reason, error)]

    def _finish(self, sequence: Sequence, reason: StopReason, error: str = "") -> list[Event]:
        request = self._requests.pop(sequence.request_id)
        if self._disk and request.is_kept and reason is not StopReason.FAILED:
            self._disk.speeds.observe_prefill(*request.prefill())
            self._disk.save(sequence)
        self._scheduler.finish(sequence)
        text = request.text.finish()
        if request.text.error:
            log.error("request %s failed: %s", sequence.request_id, request.text.error)
            reason, error = StopReason.FAILED, request.text.error
        events: list[Event] = [Delta(sequence.request_id, text, ())] if text else []
        return [*events, Finished(sequence.request_id, reason, request.usage(), request.timings(self._clock()), error)]


def reply_ids(request_id: str, n: int) -> list[str]:
    """The ids of the n replies to one request: its own, then numbered ones."""
    return [request_id, *(f"{request_id}#{number}" for number in range(1, n))]
