"""What one decode step of the device costs, by rows and context, and how near it comes to the memory's bandwidth."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from statistics import median

import torch

from octavo.bench.device import copied_per_s, parts_of
from octavo.bench.results import Figures, Result
from octavo_engine.batch import Batch
from octavo_engine.block_manager import BlockManager
from octavo_engine.flight import Flight
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams
from octavo_engine.plan import add_decodes, add_steps
from octavo_engine.sequence import Sequence

ROWS = (1, 2, 4, 8, 16, 64, 128, 256)
CONTEXTS = (256, 1024)
FEWEST_LOOKS, SECONDS = 3, 1.0
"""As many looks as fit into a second; of large steps on a CPU, which take longer, a few."""
PROFILED_LOOKS = 3
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


@dataclass(frozen=True, slots=True)
class Cases:
    """The steps to measure: each number of rows with each context, of which all share the first `shared` tokens, in
    whole blocks; where `is_profiled`, by kernel, too."""

    rows: tuple[int, ...] = ROWS
    contexts: tuple[int, ...] = CONTEXTS
    shared: int = 0
    is_profiled: bool = False


def bench_step(cases: Cases, model: str, loaded: Loaded) -> Iterator[Result]:
    """Each case as the engine runs it, several steps a look where it does so; then the cases without room.

    "GB read" is what a step must read: the weights once, keys and values of all rows. Blocks of the pool are written
    to, so the engine has no work and no cached prefixes. Profiles come last: what a profiler leaves behind in a process
    may slow down what is timed after it.
    """
    copied = copied_per_s(torch.device(loaded.info.device))
    yield Result(work="step/copy", model=model, more={"GB/s": copied / 1e9})
    pairs = [(rows, context) for context, rows in product(cases.contexts, cases.rows)]
    left_out = {pair: reason for pair in pairs if (reason := why_no_room(loaded, *pair))}
    timed = []
    for pair in pairs:
        if pair not in left_out:
            batch = decode_batch(loaded, *pair, cases.shared)
            timed.append((_result(model, *pair, _measure(loaded, batch, copied)), batch))
            yield timed[-1][0]
    yield from (_result(model, *pair, {"left out": reason}) for pair, reason in left_out.items())
    if cases.is_profiled:
        for result, batch in timed:
            yield from _inside(loaded, result, batch)
        yield from (_profiled(loaded, result, batch) for result, batch in timed)


def _result(model: str, rows: int, context: int, figures: Figures) -> Result:
    return Result(work="step", model=model, more={"rows": rows, "context": context, **figures})


def why_no_room(loaded: Loaded, rows: int, context: int) -> str:
    """Why there is no step of so many rows and tokens; empty when there is one."""
    info, num_blocks = loaded.info, loaded.engine.counts().total
    if context > info.max_model_len:
        return f"the context ends at {info.max_model_len:,} tokens"
    needed = 1 + rows * -(-context // info.block_size)
    return f"{needed:,} blocks are needed, {num_blocks:,} there" if needed > num_blocks else ""


def decode_batch(loaded: Loaded, rows: int, context: int, shared: int = 0) -> Batch:
    """Rows that decode, each over blocks of its own, but for whole blocks of the first `shared` tokens; its new token
    is the last of `context` ones.

    It may be launched again and again. The blocks have been written: memory that was not is read faster.
    """
    info = loaded.info
    manager = BlockManager(loaded.engine.counts().total, info.block_size, enable_prefix_caching=False)
    written = _write_block(loaded, manager)
    batch = Batch()
    add_decodes(batch, [_decoding(manager, context) for _ in range(rows)])
    add_steps(batch, info.num_decode_steps, info.max_model_len, manager)
    for sequence in batch.sequences:
        sequence.most = len(sequence.token_ids) + batch.num_steps  # so that nothing is computed beyond the batch
    num_shared = min(shared, context - 1) // info.block_size
    for sequence in batch.sequences:
        sequence.block_table[:num_shared] = batch.sequences[0].block_table[:num_shared]
    read = dict.fromkeys(block for sequence in batch.sequences for block in sequence.block_table)
    batch.copies = [(written, block) for block in read]
    Flight(loaded.engine.runner, batch).land()
    batch.copies = []
    return batch


def _write_block(loaded: Loaded, manager: BlockManager) -> int:
    """A block with keys and values of a prompt."""
    length = min(loaded.info.block_size, loaded.info.max_model_len)
    sequence = Sequence("written", range(length), GREEDY)
    manager.admit(sequence, manager.match(sequence))
    prompt = Batch()
    prompt.add(sequence, length)
    Flight(loaded.engine.runner, prompt).land()
    return sequence.block_table[0]


def _decoding(manager: BlockManager, context: int) -> Sequence:
    """A sequence that has replied with one token, whose keys and values are still to be computed."""
    sequence = Sequence("decoding", [0] * (context - 1), GREEDY)
    sequence.token_ids.append(0)
    manager.admit(sequence, manager.match(sequence))
    manager.commit(sequence, context - 1)
    return sequence


def _measure(loaded: Loaded, batch: Batch, copied: float) -> dict[str, float]:
    times: list[float] = []
    while len(times) < FEWEST_LOOKS or sum(times) < SECONDS:
        begin = time.perf_counter()
        Flight(loaded.engine.runner, batch).land()
        times.append(time.perf_counter() - begin)
    step_s, step_bytes = median(times) / batch.num_steps, bytes_read(loaded, batch)
    return {
        "us a step": step_s * 1e6,
        "us at best": min(times) / batch.num_steps * 1e6,
        "GB read": step_bytes / 1e9,
        "GB/s": step_bytes / step_s / 1e9,
        "of copy %": step_bytes / step_s / copied * 100,
    }


def bytes_read(loaded: Loaded, batch: Batch) -> float:
    """The least that a step reads, on the average of the batch's steps, in each of which rows grow by a token."""
    num_tokens = sum(batch.context_lens) + len(batch.sequences) * (batch.num_steps - 1) / 2
    blocks = [block for sequence in batch.sequences for block in sequence.block_table]
    num_tokens -= (len(blocks) - len(set(blocks))) * loaded.info.block_size  # read once by all who share them
    return loaded.info.weight_bytes + num_tokens * loaded.info.kv_bytes_per_token


def _profiled(loaded: Loaded, timed: Result, batch: Batch) -> Result:
    def looks() -> None:
        for _ in range(PROFILED_LOOKS):
            Flight(loaded.engine.runner, batch).land()

    step_us, device = float(timed.more["us a step"]), torch.device(loaded.info.device)
    return replace(timed, work="step/parts", parts=parts_of(looks, PROFILED_LOOKS * batch.num_steps, step_us, device))


def _inside(loaded: Loaded, timed: Result, batch: Batch) -> Iterator[Result]:
    """Where the time of a step goes that is one kernel, which tells it itself."""
    profile = getattr(loaded.engine.runner, "profile", None)
    costs = profile([s.block_table for s in batch.sequences], batch.context_lens[0]) if profile else None
    if costs:
        step_us = costs.pop("step")
        parts = [{"us a step": us, "share %": round(100 * us / step_us, 1), "what": cost} for cost, us in costs.items()]
        yield replace(timed, work="step/inside", parts=parts)
