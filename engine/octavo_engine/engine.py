"""The engine: requests in, events out, one step at a time. Not thread-safe: one thread calls all of it."""

import logging
import random
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from octavo_engine.batch import ModelRunner
from octavo_engine.detokenizer import Decode, Detokenizer
from octavo_engine.events import Delta, Event, Finished, Started, StopReason
from octavo_engine.params import SamplingParams
from octavo_engine.request import Request
from octavo_engine.scheduler import Scheduler
from octavo_engine.sequence import Sequence

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counts:
    """Blocks by state (`shared` of the used ones have two holders or more) and requests by state."""

    total: int
    free: int
    cached: int
    used: int
    shared: int
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
        self._decode = decode
        self._stop_ids = frozenset(stop_ids)
        self._clock = clock
        self._requests: dict[str, Request] = {}

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return self._scheduler.has_work

    def check(self, num_prompt_tokens: int) -> None:
        """Raise RequestRefusedError for a prompt that `add` would refuse, without adding anything."""
        self._scheduler.check(num_prompt_tokens)

    def add(self, request_id: str, token_ids: SequenceOf[int], params: SamplingParams, *, session: str = "") -> None:
        """Queue a request; its events come from later steps. Raises RequestRefusedError with the sizes in tokens.

        Requests of one `session` are served in order, those of different sessions in turn.
        """
        assert request_id not in self._requests, f"request id {request_id!r} is taken"
        seed = random.getrandbits(63) if params.seed is None else params.seed
        sequence = Sequence(request_id, token_ids, params, seed=seed, session=session)
        self._scheduler.add(sequence)
        self._requests[request_id] = Request(sequence, Detokenizer(self._decode), self._clock())

    def abort(self, request_id: str) -> None:
        """Mark a request; the next step ends it. Unknown and finished ids are ignored."""
        if request := self._requests.get(request_id):
            request.sequence.is_aborted = True

    def step(self) -> list[Event]:
        """Run one batch and tell what happened to each request in it."""
        events = list(self._sweep_aborted())
        batch, admitted, overflowed = self._scheduler.schedule()
        events += [self._start(sequence) for sequence in admitted if not self._request(sequence).started_at]
        events += [event for sequence in overflowed for event in self._finish(sequence, StopReason.KV_FULL)]
        if not batch.sequences:
            return events
        try:
            next_ids = self._runner.run(batch)
        except Exception as error:  # a border: one bad step must not take the other chats along
            log.exception("a step of %d rows failed", len(batch.sequences))
            self._scheduler.fail(batch)
            return events + [e for s in batch.sequences for e in self._finish(s, StopReason.FAILED, repr(error))]
        for sequence, token_id in self._scheduler.advance(batch, next_ids):
            events += self._receive(sequence, token_id)
        return events

    def counts(self) -> Counts:
        """Blocks and requests at this moment."""
        pool, scheduler = self._scheduler.manager.pool, self._scheduler
        return Counts(
            total=pool.num_blocks,
            free=pool.num_free,
            cached=pool.num_cached,
            used=pool.num_used,
            shared=pool.num_shared,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
        )

    def check_integrity(self) -> None:
        """Assert the laws of the blocks; cheap enough for every idle moment."""
        self._scheduler.check_integrity()

    def _request(self, sequence: Sequence) -> Request:
        return self._requests[sequence.request_id]

    def _sweep_aborted(self) -> Iterator[Event]:
        for request in [r for r in self._requests.values() if r.sequence.is_aborted]:
            yield from self._finish(request.sequence, StopReason.ABORTED)

    def _start(self, sequence: Sequence) -> Started:
        self._request(sequence).started_at = self._clock()
        sequence.num_cached = sequence.num_computed
        return Started(sequence.request_id, sequence.num_cached)

    def _receive(self, sequence: Sequence, token_id: int) -> list[Event]:
        request = self._request(sequence)
        request.first_token_at = request.first_token_at or self._clock()
        text = request.detokenizer.add([token_id])
        events: list[Event] = [Delta(sequence.request_id, text, (token_id,))]
        reason = self._stop_reason(sequence, token_id)
        return events if reason is None else events + self._finish(sequence, reason)

    def _stop_reason(self, sequence: Sequence, token_id: int) -> StopReason | None:
        if token_id in self._stop_ids and not sequence.params.ignore_eos:
            return StopReason.STOP
        limit = sequence.params.max_tokens
        is_long = limit is not None and sequence.num_replied >= limit
        return StopReason.LENGTH if is_long or len(sequence.token_ids) >= self._scheduler.max_model_len else None

    def _finish(self, sequence: Sequence, reason: StopReason, error: str = "") -> list[Event]:
        request = self._requests.pop(sequence.request_id)
        self._scheduler.finish(sequence)
        text = request.detokenizer.finish()
        events: list[Event] = [Delta(sequence.request_id, text, ())] if text else []
        return [*events, Finished(sequence.request_id, reason, request.usage(), request.timings(self._clock()), error)]
