"""What sharing saves and costs: one prefix for many, a fork, an abort."""

import random
import time
from statistics import median

from octavo.bench.drive import Run, drive
from octavo.bench.results import Result
from octavo.bench.workloads import Request, workload
from octavo_engine.engine import Engine
from octavo_engine.events import Event, Finished
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams

NUM_REPEATS = 20


def bench_prefix(model: str, loaded: Loaded) -> list[Result]:
    """100 requests with one 1,024-token prefix and one token of reply: what is computed, with sharing and without.

    "saved" is the share of the prefix's 100 computations that did not happen. Without sharing means here: one request
    after the other, the cache cleared between them.
    """
    requests = [Request(request.prompt, 1) for request in workload("shared100")]
    shared = drive(loaded.engine, requests)
    alone = Run()
    for request in requests:
        loaded.engine.clear_cache()
        run = drive(loaded.engine, [request])
        alone.seconds += run.seconds
        alone.finished += run.finished
    return [_prefix_result("shared", model, shared, requests), _prefix_result("not shared", model, alone, requests)]


def _prefix_result(kind: str, model: str, run: Run, requests: list[Request]) -> Result:
    own = sum(len(request.prompt) - 1024 for request in requests)
    saved = 1 - (run.num_computed - own) / (len(requests) * 1024)
    more: dict[str, float | int | str] = {"prefix": kind, "computed": run.num_computed, "prefix saved %": saved * 100}
    return Result(
        work="prefix",
        model=model,
        rps=len(requests) / run.seconds,
        first_token_ms=run.first_token_ms,
        more=more | {"seconds": run.seconds},
    )


def bench_fork(model: str, loaded: Loaded) -> list[Result]:
    """A running sequence of 500 tokens goes on a second time: the call, and the step that copies one block."""
    calls, steps = [], []
    for repeat in range(NUM_REPEATS):
        engine = _start(loaded.engine, repeat)
        begin = time.perf_counter()
        engine.fork("parent", "child")
        called = time.perf_counter()
        _step(engine)
        stepped = time.perf_counter()
        _step(engine)
        calls.append(called - begin)
        steps.append((stepped - called) - (time.perf_counter() - stepped))
        for name in ("parent", "child"):
            engine.abort(name)
        engine.step()
    more = {"call us": median(calls) * 1e6, "copying step minus plain step us": median(steps) * 1e6}
    return [Result(work="fork", model=model, more=more)]


def bench_abort(model: str, loaded: Loaded) -> list[Result]:
    """From the call to the event, while one other sequence decodes: at most the rest of a step."""
    times = []
    for repeat in range(NUM_REPEATS):
        engine = _start(loaded.engine, repeat)
        begin = time.perf_counter()
        engine.abort("parent")
        while not any(isinstance(event, Finished) for event in _step(engine)):
            pass
        times.append(time.perf_counter() - begin)
    return [Result(work="abort", model=model, more={"ms": median(times) * 1e3})]


def _start(engine: Engine, seed: int) -> Engine:
    rng = random.Random(seed)
    prompt = [rng.randint(100, 30_000) for _ in range(500)]
    one_step_a_look = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=100, logprobs=0)
    engine.add("parent", prompt, one_step_a_look)
    for _ in range(4):
        _step(engine)
    return engine


def _step(engine: Engine) -> list[Event]:
    """A step from its launch to its ids, so that nothing is in flight at either end but what is not taken in yet."""
    events = engine.step()
    engine.wait()
    return events
