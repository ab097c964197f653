"""Where the time of a fused decode step goes, told by its kernel: no profiler sees inside one launch."""

import torch

from octavo_engine.runner.fast.step import FusedStep, StepKernels
from octavo_engine.runner.fast.step_layout import COSTS
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

NUM_STEPS = 20
Profile = dict[str, float]


@torch.inference_mode()
def step_profile(w: FastWeights, cache: KVCache, tables: list[list[int]], context: int, leads: list[int]) -> Profile:
    """Microseconds of a whole step, "step", and of each of COSTS, the mean of all blocks.

    Of rows over block `tables`, 1, 2, 4 or 8, that have `context` tokens with the new one; `leads` as FusedStep wants
    them. Raises CudaModuleError where the kernel cannot be had.
    """
    count, device = len(tables), cache.data.device
    values = [1] * count, [context - 1] * count, tables, leads
    ids, positions, blocks, shared = (torch.tensor(value, dtype=torch.int32, device=device) for value in values)
    step = FusedStep(w, cache, StepKernels(w, cache.block_size, (count,), profile=True), count)
    return _clocked(step, [ids, positions, blocks, shared])


def _clocked(step: FusedStep, inputs: list[torch.Tensor]) -> Profile:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    step(*inputs)
    step(*inputs)
    step.clocks.zero_()
    begin.record()
    for _ in range(NUM_STEPS):
        step(*inputs)
    end.record()
    end.synchronize()
    microseconds = begin.elapsed_time(end) * 1000 / NUM_STEPS
    clocks = step.clocks.double().mean(0)
    of_workers = clocks[: COSTS.index("feed waits: queue full")].sum()
    return {"step": microseconds, **dict(zip(COSTS, (clocks / of_workers * microseconds).tolist(), strict=True))}
