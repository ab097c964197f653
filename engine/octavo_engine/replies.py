"""The requests that are not over: their text, their clocks, and the events that tell of them."""

import logging
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf

from octavo_engine.batch import Said
from octavo_engine.detokenizer import Decode, find_spoiler
from octavo_engine.events import Delta, Event, Finished, Preempted, Started, StopReason, TokenLogprobs
from octavo_engine.plan import Plan
from octavo_engine.reply_text import ReplyText
from octavo_engine.request import Request
from octavo_engine.scheduler import Scheduler
from octavo_engine.sequence import Sequence

log = logging.getLogger(__name__)
Piece = tuple[SequenceOf[int], SequenceOf[TokenLogprobs | None]]


class Replies:
    """Requests by id. A sequence whose request has ended here is told of no more, whatever a step still gives it."""

    def __init__(self, scheduler: Scheduler, decode: Decode, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._decode = decode
        self._spoiler = find_spoiler(decode)
        self._clock = clock
        self._requests: dict[str, Request] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    def __getitem__(self, request_id: str) -> Request:
        return self._requests[request_id]

    def open(self, sequence: Sequence) -> None:
        """A request begins to wait."""
        text = ReplyText(self._decode, sequence.params.stop, self._spoiler)
        self._requests[sequence.request_id] = Request(sequence, text, self._clock())

    def start(self, sequence: Sequence) -> Started:
        """A request leaves the queue for the first time."""
        self._requests[sequence.request_id].started_at = self._clock()
        sequence.num_cached = sequence.num_computed
        return Started(sequence.request_id, sequence.num_cached)

    def tell(self, said: Iterable[Said]) -> list[Event]:
        """The text of sampled ids, and the ends that they or their text bring."""
        events: list[Event] = []
        for row in said:
            self._tell(row, events)
        return events

    def tell_plan(self, plan: Plan) -> list[Event]:
        """Whose state changed when a step was planned; those that ended since are left out."""
        events: list[Event] = [Preempted(s.request_id) for s in plan.preempted if self._is_open(s)]
        admitted = [s for s in plan.admitted if self._is_open(s)]
        events += [self.start(s) for s in admitted if not self._requests[s.request_id].started_at]
        return events + self.end_all(plan.overflowed, StopReason.KV_FULL)

    def end_all(self, sequences: Iterable[Sequence], reason: StopReason, error: str = "") -> list[Event]:
        """End the requests of sequences; those that have ended are left out."""
        left = [sequence for sequence in sequences if self._is_open(sequence)]
        return [event for sequence in left for event in self._end(sequence, reason, error)]

    def check_integrity(self) -> None:
        """Assert that requests and unfinished sequences are the same."""
        held = [*self._scheduler.running, *self._scheduler.waiting]
        assert {id(s) for s in held} == {id(r.sequence) for r in self._requests.values()}, "a request is lost"

    def _is_open(self, sequence: Sequence) -> bool:
        """Whether its request has not ended; another may have the same id by now."""
        request = self._requests.get(sequence.request_id)
        return request is not None and request.sequence is sequence

    def _tell(self, said: Said, events: list[Event]) -> None:
        """Ids of one look are one delta, but where a stop string may end the reply at any of them."""
        sequence, token_ids, logprobs = said
        request = self._requests[sequence.request_id]
        request.first_token_at = request.first_token_at or self._clock()
        pieces: Iterable[Piece] = (
            ((token_ids, logprobs),) if not sequence.params.stop else one_by_one(token_ids, logprobs)
        )
        for ids, entries in pieces:
            events.append(request.say(ids, entries))
            if request.text.is_over:
                events += self._end(sequence, StopReason.STOP)
                return
        if sequence.end:
            events += self._end(sequence, sequence.end)

    def _end(self, sequence: Sequence, reason: StopReason, error: str = "") -> list[Event]:
        request = self._requests.pop(sequence.request_id)
        if self._scheduler.disk and sequence.is_kept and reason is not StopReason.FAILED:
            self._scheduler.disk.speeds.observe_prefill(*request.prefill())
        self._scheduler.finish(sequence)
        text = request.text.finish()
        if request.text.error:
            log.error("request %s failed: %s", sequence.request_id, request.text.error)
            reason, error = StopReason.FAILED, request.text.error
        events: list[Event] = [Delta(sequence.request_id, text, ())] if text else []
        return [*events, Finished(sequence.request_id, reason, request.usage(), request.timings(self._clock()), error)]


def one_by_one(token_ids: SequenceOf[int], logprobs: SequenceOf[TokenLogprobs | None]) -> Iterable[Piece]:
    """Single ids with their logprobs, if there are any."""
    return ((token_ids[n : n + 1], logprobs[n : n + 1]) for n in range(len(token_ids)))
