"""What sharing saves and costs: one prefix for many, a fork, an abort."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from octavo.bench.drive import drive
from octavo.bench.results import Result
from octavo.bench.workloads import Request, workload
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.events import Finished
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams

NUM_REPEATS = 20


def bench_prefix(model: str, load: Callable[[EngineConfig], Loaded], config: EngineConfig) -> list[Result]:
    """100 requests with one 1,024-token prefix and one token of reply: prompt tokens computed, with and without cache.

    "saved" is the share of the shared prefix's 100 computations that did not happen.
    """
    requests = [Request(request.prompt, 1) for request in workload("shared100")]
    results = []
    for is_on in (True, False):
        run = drive(load(replace(config, enable_prefix_caching=is_on)).engine, requests)
        own = sum(len(request.prompt) - 1024 for request in requests)
        saved = 1 - (run.num_computed - own) / (100 * 1024)
        more = {"prefix caching": "on" if is_on else "off", "computed": run.num_computed, "prefix saved %": saved * 100}
        results.append(
            Result(
                work="prefix",
                model=model,
                rps=len(requests) / run.seconds,
                first_token_ms=run.first_token_ms,
                more=more | {"seconds": run.seconds},
            )
        )
    return results


def bench_fork(model: str, loaded: Loaded) -> list[Result]:
    """A running sequence of 500 tokens goes on a second time: the call, and the step that copies one block."""
    calls, steps = [], []
    for repeat in range(NUM_REPEATS):
        engine = _start(loaded.engine, repeat)
        begin = time.perf_counter()
        engine.fork("parent", "child")
        called = time.perf_counter()
        engine.step()
        stepped = time.perf_counter()
        engine.step()
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
        while not any(isinstance(event, Finished) for event in engine.step()):
            pass
        times.append(time.perf_counter() - begin)
    return [Result(work="abort", model=model, more={"ms": median(times) * 1e3})]


def _start(engine: Engine, seed: int) -> Engine:
    rng = random.Random(seed)
    prompt = [rng.randint(100, 30_000) for _ in range(500)]
    engine.add("parent", prompt, SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=100))
    for _ in range(4):
        engine.step()
    return engine
