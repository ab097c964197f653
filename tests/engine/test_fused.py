"""The fused decode step is taken only where it tells the truth; a stand-in for both ways computes on the CPU."""

import logging
import math
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from octavo_engine.batch import Batch
from octavo_engine.runner.fast import fused
from octavo_engine.runner.fast.cuda_module import CudaModuleError
from octavo_engine.runner.fast.step import NUM_ROWS
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache, KVShape

SIZE = 256
WEIGHTS = cast(FastWeights, SimpleNamespace(embed=torch.zeros(50, 1), cos=torch.zeros(2048, 1)))
LIES = ("louder", "another row's", "not a number", "writes nothing", "writes beside", "reads too little")


def make_cache(num_blocks: int = 12) -> KVCache:
    shape = KVShape(num_layers=2, num_kv_heads=1, head_dim=8, dtype=torch.float32)
    return KVCache(shape, num_blocks, SIZE, torch.device("cpu"))


def compute(cache: KVCache, token: int, position: int, table: list[int], lie: str = "") -> torch.Tensor:
    """Write the KV of one token and return its logits, (32,), which depend on all keys and values so far."""
    if lie != "writes nothing":
        offset = (position + (lie == "writes beside")) % SIZE
        angles = torch.arange(32.0).view(2, 2, 1, 8) * (token + 1) + position
        cache.data[table[position // SIZE], :, :, offset] = angles.cos()
    context = torch.cat([cache.data[block] for block in table], dim=2)[:, :, : position + 1]
    return (context[:, :, :1] if lie == "reads too little" else context).sum(2).flatten()


class FakeStep:
    """One decode step, with a lie in its logits or in what it writes."""

    def __init__(self, cache: KVCache, lie: str) -> None:
        self._cache, self._lie = cache, lie

    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor, leads: torch.Tensor
    ) -> torch.Tensor:
        if self._lie == "does not start":
            raise CudaModuleError("CUDA answered too large")
        rows = zip(ids.tolist(), positions.tolist(), tables.tolist(), strict=True)
        logits = torch.stack([compute(self._cache, *row, self._lie) for row in rows])
        factor = {"louder": 1.2, "not a number": math.nan}.get(self._lie, 1.0)
        return factor * (logits.roll(1, 0) if self._lie == "another row's" else logits)


def load(monkeypatch: pytest.MonkeyPatch, cache: KVCache, lie: str) -> list[int]:
    """The numbers of rows that have a step."""

    def forward(batch: Batch) -> torch.Tensor:
        tokens, logits = iter(batch.token_ids), []
        for sequence, end in zip(batch.sequences, batch.context_lens, strict=True):
            span = range(sequence.num_computed, end)
            logits += [compute(cache, next(tokens), position, sequence.block_table) for position in span][-1:]
        return torch.stack(logits)

    monkeypatch.setattr(fused, "why_not_fused", lambda w: "")
    monkeypatch.setattr(fused, "StepKernels", lambda w, block_size: object())
    monkeypatch.setattr(fused, "FusedStep", lambda w, cache, kernels, num_rows: FakeStep(cache, lie))
    return [*fused.load_steps(WEIGHTS, cache, forward)]


def test_a_step_that_agrees_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, make_cache(), "") == [*NUM_ROWS]


@pytest.mark.parametrize("lie", LIES)
def test_a_step_that_lies_is_not_taken_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lie: str
) -> None:
    assert load(monkeypatch, make_cache(), lie) == []
    assert "few rows are decoded without the fused kernel: it differs from the forward pass by" in caplog.text


def test_a_step_that_cannot_be_launched_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert load(monkeypatch, make_cache(), "does not start") == []
    assert "few rows are decoded without the fused kernel: CUDA answered too large" in caplog.text


@pytest.mark.parametrize("num_blocks", [1, 2, 8])
def test_a_small_pool_is_no_reason_against_a_step(monkeypatch: pytest.MonkeyPatch, num_blocks: int) -> None:
    assert load(monkeypatch, make_cache(num_blocks), "") == [*NUM_ROWS]
