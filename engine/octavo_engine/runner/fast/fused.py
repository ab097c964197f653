"""Loads the fused decode step, and takes it only where it gives what the forward pass in parts gives."""

import logging
from collections.abc import Callable, Mapping

import torch

from octavo_engine.batch import Batch
from octavo_engine.params import SamplingParams
from octavo_engine.runner.fast.cuda_module import CudaModuleError
from octavo_engine.runner.fast.step import NUM_ROWS, FusedStep, StepKernels, why_not_fused
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.flash import padded
from octavo_engine.runner.kv_cache import KVCache
from octavo_engine.sequence import Sequence

log = logging.getLogger(__name__)
Forward = Callable[[Batch], torch.Tensor]
"""Writes the KV of a batch and returns the logits of the rows that sample, (rows, vocabulary)."""
LARGEST_ERROR = 0.1
"""Relative, of a row's logits or of the KV written; two bfloat16 paths differ by about 0.01, a wrong one by about 1."""
POSITIONS = (1300, 700, 256, 450, 0, 255, 3, 100)
"""Of the rows that are compared, as far as the context goes: within a block, at its edges, behind several; those that
begin with the same blocks come first."""


def load_steps(w: FastWeights, cache: KVCache, forward: Forward) -> dict[int, FusedStep]:
    """The step for each number of rows; none, with the reason in the log, where they cannot be had or are wrong.

    Blocks of the pool are written to, so nobody may use them yet.
    """
    reason = why_not_fused(w)
    try:
        if not reason:
            kernels = StepKernels(w, cache.block_size)
            steps = {num_rows: FusedStep(w, cache, kernels, num_rows) for num_rows in NUM_ROWS}
            return steps if agrees(steps, w, cache, forward) else {}
    except CudaModuleError as error:
        reason = str(error)
    log.info("few rows are decoded without the fused kernel: %s", reason)
    return {}


@torch.inference_mode()
def agrees(steps: Mapping[int, FusedStep], w: FastWeights, cache: KVCache, forward: Forward) -> bool:
    """Whether each step writes and returns what the forward pass does, as far as the pool has blocks for its rows."""
    prompt = Batch()
    _add(prompt, [0], 0, [i * 37 % len(w.embed) for i in range(min(cache.block_size, len(w.cos)))])
    forward(prompt)
    fitting = [(step, count) for count, step in steps.items() if count < cache.scratch_block]
    error = max((largest_error(step, _rows(count, w, cache), cache, forward) for step, count in fitting), default=0.0)
    log.info("fused kernel: relative error %.4f against the forward pass", error)
    if not error < LARGEST_ERROR:
        log.warning("few rows are decoded without the fused kernel: it differs from the forward pass by %.3f", error)
    return error < LARGEST_ERROR


def largest_error(step: FusedStep, rows: Batch, cache: KVCache, forward: Forward) -> float:
    """How far logits and written KV are off, relative, in the worst row."""
    size, positions = cache.block_size, rows.positions
    written = [s.block_table[-1] for s in rows.sequences], slice(None), slice(None), [p % size for p in positions]
    logits, kv = forward(rows), cache.data[written]
    tables = [padded(s.block_table, 1 + max(positions) // size) for s in rows.sequences]
    inputs = [torch.tensor(values, dtype=torch.int32) for values in (rows.token_ids, positions, tables)]
    alone = torch.zeros(2, len(positions), dtype=torch.int32)
    errors = []
    for leads in (alone, _leads(positions, size)):  # also, steps take turns with the places between blocks
        cache.data[written] = 0
        ours = step(*(values.to(cache.data.device) for values in (*inputs, leads)))
        errors += [relative_errors(ours, logits), relative_errors(cache.data[written], kv)]
    return float(torch.cat(errors).max().nan_to_num(torch.inf))


def _rows(num_rows: int, w: FastWeights, cache: KVCache) -> Batch:
    """Rows that read block 0, some of them several times, and go on in a copy of it, each in its own."""
    rows = Batch()
    for block, position in enumerate(POSITIONS[:num_rows], 1):
        start = min(position, len(w.cos) - 1)
        cache.copy([(0, block)])
        _add(rows, [0] * (start // cache.block_size) + [block], start, [block * 37 % len(w.embed)])
    return rows


def _leads(positions: list[int], size: int) -> torch.Tensor:
    """The first block is shared by all rows that have filled it, if they are several."""
    sharing = [position >= size for position in positions]
    tokens = [size * (shares and sum(sharing) > 1) for shares in sharing]
    return torch.tensor([tokens, [0] * len(positions)], dtype=torch.int32)


def _add(batch: Batch, table: list[int], start: int, token_ids: list[int]) -> None:
    """A row that computes `token_ids` from position `start` on."""
    sequence = Sequence("agreement", [0] * start + token_ids, SamplingParams())
    sequence.block_table, sequence.num_computed = table, start
    batch.add(sequence, len(token_ids))


def relative_errors(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Of each row, (rows,)."""
    norm = torch.linalg.vector_norm
    errors: torch.Tensor = norm((ours.float() - theirs.float()).flatten(1), dim=1)
    errors /= norm(theirs.float().flatten(1), dim=1)
    return errors
