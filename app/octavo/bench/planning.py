"""What the planning half costs by itself: microseconds a step, and slots that hold no token."""

import time
from statistics import median

from octavo.bench.results import Result
from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.block_manager import BlockManager
from octavo_engine.config import EngineConfig
from octavo_engine.engine import Engine
from octavo_engine.params import SamplingParams
from octavo_engine.scheduler import Scheduler
from octavo_engine.sequence import Sequence

NUM_STEPS = 200
WASTE_LENGTHS = (128, 256, 512, 1024, 2048)
WASTE_REPLY = 128


class NullRunner:
    """Takes no time: what is left of a step is planning."""

    def check(self, params: SamplingParams) -> None: ...

    def launch(self, batch: Batch) -> PendingStep:
        return PendingStep(lambda: StepOutput([7] * sum(batch.samples)))


def bench_planning() -> list[Result]:
    """Microseconds of Python a decode step, with text and events, by number of sequences and by context."""
    return [
        Result(
            work="planning",
            model="none",
            more={"sequences": count, "context": context, "us a step": _step_us(count, context)},
        )
        for context in (512, 4096)
        for count in (1, 8, 64, 256)
    ]


def _step_us(count: int, context: int) -> float:
    config = EngineConfig(max_num_seqs=256, max_num_batched_tokens=8192)
    manager = BlockManager(count * (context + 2 * NUM_STEPS) // 16, 16)
    engine = Engine(Scheduler(manager, config, 1 << 20), NullRunner(), lambda ids: "word " * len(ids), [])
    for number in range(count):
        prompt = [number + 1] * 8 + [9] * (context - 8)
        engine.add(str(number), prompt, SamplingParams(temperature=0.0, max_tokens=2 * NUM_STEPS))
    while len(engine.step()) < count:  # until a step gives every sequence a token
        pass
    times = []
    for _ in range(NUM_STEPS):
        begin = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - begin)
    return median(times) * 1e6


def bench_waste() -> list[Result]:
    """Allocated slots that hold no token, averaged over a reply of 128 tokens, against a cache of 2,048 set aside."""
    results = []
    for block_size in (16, 256):
        for length in WASTE_LENGTHS:
            paged = _waste(length, block_size)
            held = length + WASTE_REPLY / 2
            more = {"block size": block_size, "prompt": length, "paged %": paged * 100}
            results.append(
                Result(work="waste", model="none", more=more | {"preallocated %": max(0.0, 1 - held / 2048) * 100})
            )
    return results


def _waste(length: int, block_size: int) -> float:
    manager = BlockManager(512, block_size)
    sequence = Sequence("waste", range(length), SamplingParams())
    manager.admit(sequence, manager.match(sequence))
    manager.commit(sequence, length)
    allocated = held = 0
    for token in range(WASTE_REPLY):
        sequence.token_ids.append(token)
        manager.grow(sequence)
        manager.commit(sequence, sequence.num_computed + 1)
        allocated += len(sequence.block_table) * block_size
        held += sequence.num_computed
    return 1 - held / allocated
