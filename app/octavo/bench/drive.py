"""Runs requests through an engine and takes the times."""

import time
from dataclasses import dataclass, field
from statistics import median

from octavo.bench.workloads import Request
from octavo_engine.engine import Engine
from octavo_engine.events import Delta, Event, Finished, StopReason
from octavo_engine.params import SamplingParams


@dataclass(slots=True)
class Run:
    """What requests that were asked together took; `replies` are their ids, in the order of the requests."""

    seconds: float = 0.0
    replies: list[list[int]] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)

    @property
    def num_output(self) -> int:
        return sum(map(len, self.replies))

    @property
    def num_computed(self) -> int:
        """Prompt tokens that were computed; the rest came from shared blocks."""
        return sum(done.usage.computed_tokens for done in self.finished)

    @property
    def first_token_ms(self) -> float:
        """The median over the requests, from arrival to the first token."""
        return median(done.timings.first_token_ms for done in self.finished)


def drive(engine: Engine, requests: list[Request]) -> Run:
    """Ask for all at once, greedy, end-of-sequence ignored. Raises RuntimeError when one is cut short."""
    run = Run(replies=[[] for _ in requests])
    start = time.perf_counter()
    for number, request in enumerate(requests):
        params = SamplingParams(temperature=0.0, max_tokens=request.num_output, ignore_eos=True)
        engine.add(str(number), request.prompt, params, session=str(number))
    while engine.has_work:
        for event in engine.step():
            _record(event, run)
    run.seconds = time.perf_counter() - start
    return run


def _record(event: Event, run: Run) -> None:
    if isinstance(event, Delta):
        run.replies[int(event.request_id)] += event.token_ids
    elif isinstance(event, Finished):
        if event.stop_reason is not StopReason.LENGTH:
            raise RuntimeError(f"request {event.request_id} ended with {event.stop_reason}: {event.error}")
        run.finished.append(event)
