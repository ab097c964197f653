"""The own attention of many rows: its CUDA sources, thread by thread on the CPU under AddressSanitizer, and float64."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.engine.emulated_kernel import CAN_EMULATE, EmulatedAttention
from tests.engine.reference_step import random_weights

from octavo_engine.runner.kv_cache import KVCache, KVShape

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CAN_EMULATE, reason="needs g++ on Linux on x86-64")]
LARGEST_ERROR = 5e-3
"""Relative, of a row; the rounding of the result alone gives 2e-3."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, a device, and the lengths of rows."""

    heads: int
    kv_heads: int
    dim: int
    num_programs: int
    lengths: list[int]
    page: int = 256
    sharpness: float = 2.0


CASES = {
    "one head a group, edges of tiles and pages, blocks that end within a row": Case(
        heads=2, kv_heads=2, dim=128, num_programs=3,
        lengths=[1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 512, 513],
    ),
    "two heads a group, one row of almost all tokens": Case(
        heads=4, kv_heads=2, dim=64, num_programs=3, lengths=[3, 1, 1, 2, 1500, 1, 1, 16, 1],
    ),
    "four heads a group, two teams a row": Case(
        heads=48, kv_heads=12, dim=64, num_programs=3, lengths=[40, 1, 70, 16, 33, 100, 5, 128, 64],
    ),
    "three heads a group of 256 dimensions, small pages": Case(
        heads=3, kv_heads=1, dim=256, num_programs=1, lengths=[1, 16, 17, 31, 32, 33, 100, 150, 250], page=32,
    ),
    "eight heads a group, sharp scores": Case(
        heads=8, kv_heads=1, dim=128, num_programs=1, lengths=[300, 7, 1, 16, 90, 48, 200, 256, 2], sharpness=8,
    ),
    "forty rows, fewer tiles than blocks would take": Case(
        heads=7, kv_heads=1, dim=64, num_programs=7, lengths=[1 + row % 9 for row in range(40)],
    ),
    "one long row over nearly all blocks": Case(
        heads=1, kv_heads=1, dim=64, num_programs=12, lengths=[1, 2, 8000, *[1] * 6],
    ),
    "more rows than a lane of the prefix sum has, of one token": Case(
        heads=1, kv_heads=1, dim=64, num_programs=2, lengths=[1 + row % 3 * 16 for row in range(256)],
    ),
}  # fmt: skip


class Trial:
    """The kernel and what it reads: tokens in blocks of chance, and numbers that are none wherever it must not look."""

    def __init__(self, case: Case, folder: Path) -> None:
        torch.manual_seed(0)
        self.case, rows, width = case, len(case.lengths), -(-max(case.lengths) // case.page)
        w = random_weights(
            hidden=8, intermediate=8, vocabulary=8, layers=1, heads=case.heads, kv_heads=case.kv_heads, dim=case.dim,
            has_head_norm=False, has_bias=False, context=8,
        )  # fmt: skip
        self.attention, self.scale = EmulatedAttention(w, case.page, case.num_programs, folder), w.scale
        self.tables = torch.randperm(rows * width, dtype=torch.int32).view(rows, width)
        self.lengths = torch.tensor(case.lengths, dtype=torch.int32)
        shape = KVShape(num_layers=2, num_kv_heads=case.kv_heads, head_dim=case.dim, dtype=torch.bfloat16)
        self.cache = KVCache(shape, rows * width, case.page, torch.device("cpu"))
        self.cache.data.fill_(torch.nan)
        for row, length in enumerate(case.lengths):
            for start in range(0, length, case.page):
                used = self.cache.data[self.tables[row, start // case.page], 1, :, : length - start]
                used.copy_(torch.randn(used.shape))
        merged = torch.randn(rows, case.heads + 2 * case.kv_heads, case.dim) * case.sharpness
        self.q = merged.bfloat16()[:, : case.heads]
        self.attention._parts.fill_(torch.nan)

    def run(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.attention.module.seed = seed
        return self.attention(self.q, self.cache.layer(1), self.lengths, self.tables)

    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """In float64."""
        outs, weights = [], []
        for row, length in enumerate(self.case.lengths):
            keys, values = (
                torch.cat([pages[block] for block in self.tables[row]])[:length].double().repeat_interleave(
                    self.case.heads // self.case.kv_heads, 1
                )
                for pages in self.cache.layer(1)
            )  # fmt: skip
            scores = torch.einsum("hd,khd->hk", self.q[row].double(), keys) * self.scale
            outs.append(torch.einsum("hk,khd->hd", scores.softmax(-1), values))
            weights.append(scores.logsumexp(-1))
        return torch.stack(outs), torch.stack(weights)


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_computes_what_float64_does(name: str, tmp_path: Path) -> None:
    """In order, then with threads and blocks that come late: the same bits, though all in memory is of no use."""
    trial = Trial(CASES[name], tmp_path)
    expected, expected_weights = trial.expected()
    out, weights = trial.run(0)
    errors = (out.double() - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1)
    assert float(errors.max()) < LARGEST_ERROR, errors.tolist()
    assert float((weights.double() - expected_weights).abs().max()) < 1e-3
    for seed in (1, 2):
        trial.attention._parts.fill_(torch.nan)
        again, weights_again = trial.run(seed)
        assert again.equal(out)
        assert weights_again.equal(weights)
    assert not trial.attention._arrivals.any()
