"""Where the time of a fused decode step goes, told by its kernel: no profiler sees inside one launch."""

import torch

from octavo_engine.runner.fast.step import FusedStep, StepKernels
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

PHASES = ("QKV", "attention's output", "gate and up", "down", "head")
COSTS = (
    *(f"{phase}: {cost}" for phase in PHASES for cost in ("waits for inputs", "products", "sums go out")),
    *("attention: heads", "attention: shared tokens", "attention: own tokens", "attention: merge"),
    *("feed waits: queue full", "feed waits: memory"),
)
"""As clocks.cuh numbers them; those of the feed go on beside the others."""
NUM_STEPS = 20


@torch.inference_mode()
def step_profile(w: FastWeights, cache: KVCache, num_rows: int, context: int, shared: int = 0) -> dict[str, float]:
    """Microseconds of a whole step, "step", and of each of COSTS, the mean of all blocks.

    `num_rows` rows, 1, 2, 4 or 8, have `context` tokens each, of which they share the first `shared`; both count in
    whole blocks, and blocks from 0 on are written to. Raises CudaModuleError where the kernel cannot be had, and
    ValueError when the pool has too few blocks.
    """
    size, width = cache.block_size, -(-(context + NUM_STEPS + 2) // cache.block_size)
    if num_rows * width > cache.scratch_block:
        raise ValueError(f"{num_rows} rows of {context} tokens need {num_rows * width} blocks")
    tables = torch.arange(num_rows * width, dtype=torch.int32).view(num_rows, width)
    tables[:, : shared // size] = tables[0, : shared // size].clone()
    leads = torch.zeros(2, num_rows, dtype=torch.int32)
    leads[0] = shared // size * size
    values = torch.ones(num_rows, dtype=torch.int32), torch.full((num_rows,), context, dtype=torch.int32), tables, leads
    inputs = [value.to(cache.data.device) for value in values]
    step = FusedStep(w, cache, StepKernels(w, size, profile=True), num_rows)
    return _clocked(step, inputs)


def _clocked(step: FusedStep, inputs: list[torch.Tensor]) -> dict[str, float]:
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
