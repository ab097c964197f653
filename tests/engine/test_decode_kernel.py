"""The decode step's own CUDA sources, run thread by thread on the CPU under AddressSanitizer, beside plain torch."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from tests.engine.emulated_kernel import CAN_EMULATE, EmulatedStep
from tests.engine.reference_step import random_weights, reference_step

from octavo_engine.runner.kv_cache import KVCache, KVShape

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CAN_EMULATE, reason="needs g++ on Linux on x86-64")]
PAGE, VOCABULARY = 256, 101
LARGEST_ERROR = 0.03
"""Of logits; where a rounding falls otherwise, it is 0.01. In the cache it is no more than that."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, a device, and the positions at which its rows begin."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    dim: int
    has_extras: bool  # norms of the heads, and a bias
    num_programs: int
    depth: int
    positions: list[int]
    groups: list[tuple[int, int]] = field(default_factory=list)  # neighbours, and blocks that they begin with together
    common_key: float = 0.0  # in two dimensions of all keys, which queries meet with 7 and -6
    profile: bool = False
    num_steps: int = 2
    layers: int = 2
    must: str = "true"  # of the sources' constants, so that the case stays what its name says


CASES = {
    "eight rows, columns that end within a stage": Case(
        hidden=72, intermediate=88, heads=2, kv_heads=1, dim=256, has_extras=True,
        num_programs=3, depth=2, positions=[0, 1, 127, 128, 129, 200, 255, 300],
    ),
    "one row, three stages of columns, more heads than are held": Case(
        hidden=2056, intermediate=88, heads=5, kv_heads=1, dim=64, has_extras=False,
        num_programs=5, depth=13, positions=[511], layers=1, must="steps_of(P_QKV) == 3",
    ),
    "four rows, five stages of columns, many rounds": Case(
        hidden=40, intermediate=4104, heads=4, kv_heads=2, dim=128, has_extras=False,
        num_programs=3, depth=8, positions=[0, 300, 256, 700], groups=[(1, 0), (3, 1)], layers=1,
        must="steps_of(P_DOWN) == 5 && rounds_of(P_QKV) > 1 && rounds_of(P_GATE) > 1",
    ),
    "two rows, as many splits as there can be, blocks without any tile": Case(
        hidden=72, intermediate=96, heads=1, kv_heads=1, dim=64, has_extras=True,
        num_programs=32, depth=3, positions=[3900, 1700], groups=[(2, 6)],
    ),
    "four rows, of which one is long and has most of the teams": Case(
        hidden=40, intermediate=48, heads=4, kv_heads=2, dim=64, has_extras=False,
        num_programs=12, depth=3, positions=[3, 1900, 200, 40], layers=2,
    ),
    "eight rows, three steps of columns, odd numbers of stages in many rounds": Case(
        hidden=2056, intermediate=120, heads=12, kv_heads=1, dim=64, has_extras=False,
        num_programs=2, depth=9, positions=[0, 1, 2, 130, 250, 256, 300, 40], layers=1,
        must="steps_of(P_QKV) == 3 && rounds_of(P_QKV) > 1 && span_of(P_QKV) % 2 && rounds_of(P_OUT) > 1",
    ),
    "eight rows in two groups and one alone, two teams in a block": Case(
        hidden=64, intermediate=64, heads=4, kv_heads=4, dim=128, has_extras=True,
        num_programs=11, depth=3, positions=[300, 256, 511, 20, 700, 600, 513, 512],
        groups=[(3, 1), (1, 0), (4, 2)], layers=1, profile=True,
    ),
    "four rows of three heads a group, more queries than meet a block at once, columns that fill whole stages": Case(
        hidden=1024, intermediate=2048, heads=6, kv_heads=2, dim=64, has_extras=False,
        num_programs=9, depth=3, positions=[3, 257, 300, 256], groups=[(1, 0), (3, 1)], layers=1,
    ),
    "eight rows of three heads of 256 dimensions, which share all but the new token": Case(
        hidden=64, intermediate=64, heads=3, kv_heads=1, dim=256, has_extras=False,
        num_programs=5, depth=3, positions=[256, 257, 300, 256, 511, 260, 259, 258], groups=[(8, 1)], layers=1,
    ),
    "eight rows of two heads a group in two groups": Case(
        hidden=64, intermediate=64, heads=4, kv_heads=2, dim=64, has_extras=False,
        num_programs=17, depth=3, positions=[512, 513, 514, 515, 600, 256, 257, 300], groups=[(5, 2), (3, 1)], layers=1,
    ),
    "eight rows of two heads a group, splits of two teams in a block": Case(
        hidden=64, intermediate=64, heads=4, kv_heads=2, dim=64, has_extras=True,
        num_programs=9, depth=2, positions=[300, 0, 1100, 512, 31, 32, 33, 600], groups=[(1, 0), (1, 0), (2, 2)],
    ),
    "four rows of very unequal lengths, two teams in a block": Case(
        hidden=64, intermediate=64, heads=3, kv_heads=3, dim=256, has_extras=False,
        num_programs=6, depth=4, positions=[700, 256, 257, 1], groups=[(3, 1)],
    ),
    "two rows of five heads a group, two teams in a block": Case(
        hidden=64, intermediate=64, heads=15, kv_heads=3, dim=64, has_extras=False,
        num_programs=5, depth=3, positions=[130, 300], layers=1,
    ),
    "eight rows of four heads a group, two teams in a block, of which one may have no row": Case(
        hidden=64, intermediate=64, heads=8, kv_heads=2, dim=256, has_extras=False,
        num_programs=9, depth=2, positions=[300, 0, 40, 7, 31, 32, 33, 90], layers=1,
    ),
    "keys that have much in common": Case(
        hidden=40, intermediate=48, heads=1, kv_heads=1, dim=128, has_extras=False, common_key=60.0,
        num_programs=4, depth=3, positions=[512, 513, 600, 700], groups=[(4, 1)], layers=1,
    ),
}  # fmt: skip


class Trial:
    """The kernel and the reference over caches of their own with the same random content."""

    def __init__(self, case: Case, folder: Path) -> None:
        torch.manual_seed(0)
        self.case, num_rows = case, len(case.positions)
        self.width = (max(case.positions) + case.num_steps - 1) // PAGE + 1
        self.w = random_weights(
            hidden=case.hidden, intermediate=case.intermediate, vocabulary=VOCABULARY, layers=case.layers,
            heads=case.heads, kv_heads=case.kv_heads, dim=case.dim, has_head_norm=case.has_extras,
            has_bias=case.has_extras or case.common_key > 0, context=max(case.positions) + case.num_steps,
        )  # fmt: skip
        shape = KVShape(num_layers=case.layers, num_kv_heads=case.kv_heads, head_dim=case.dim, dtype=torch.bfloat16)
        self.cache, self.expected_cache = (
            KVCache(shape, num_rows * self.width - 1, PAGE, torch.device("cpu")) for _ in range(2)
        )
        self.expected_cache.data.normal_()
        if case.common_key:
            self.give_keys_much_in_common()
        self.cache.data.copy_(self.expected_cache.data)
        self.step = EmulatedStep(
            self.w, self.cache, num_rows, case.num_programs, case.depth, folder, case.profile, case.must
        )

    def give_keys_much_in_common(self) -> None:
        """In the dimensions that the rotary embedding turns least; of a model with one head."""
        assert self.w.qkv_bias is not None
        last = [self.case.dim // 2 - 1, self.case.dim - 1]
        query, key, _ = self.w.qkv_bias.zero_().view(3, self.case.dim)
        query[last], key[last] = torch.tensor([7.3, -6.1]).bfloat16(), self.case.common_key
        self.expected_cache.data[:, :, 0, ..., last] += self.case.common_key

    def share(self, tables: torch.Tensor) -> torch.Tensor:
        """Let the rows of each group begin with the same blocks; what FusedStep wants to know of it."""
        leads, first = torch.zeros(2, len(tables), dtype=torch.int32), 0
        for count, blocks in self.case.groups:
            tables[first : first + count, :blocks] = tables[first, :blocks].clone()
            leads[:, first : first + count] = torch.tensor([[blocks * PAGE], [first if blocks else 0]])
            first += count
        return leads

    def largest_errors(self, seed: int) -> tuple[float, float]:
        """Over all steps: of logits, and of what is in the cache, relative where it is large."""
        rows, errors = len(self.case.positions), []
        tables = torch.randperm(rows * self.width, dtype=torch.int32).view(rows, self.width)
        leads = self.share(tables)
        for number in range(self.case.num_steps):
            ids = torch.randint(0, VOCABULARY, (rows,), dtype=torch.int32)
            positions = torch.tensor(self.case.positions, dtype=torch.int32) + number
            expected = reference_step(self.w, self.expected_cache, ids, positions, tables)
            given = ids, positions, tables, torch.zeros_like(leads) if number % 2 else leads
            logits = self.step(*given, seed + number if seed else 0)
            ours, theirs = self.cache.data.float(), self.expected_cache.data.float()
            in_cache = (ours - theirs).abs() / (1 + theirs.abs())
            errors.append(torch.stack([(logits - expected).abs().max(), in_cache.max()]))
        of_logits, of_cache = torch.stack(errors).amax(0).tolist()
        return of_logits, of_cache


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_computes_what_torch_does(name: str, tmp_path: Path) -> None:
    """In order, and with threads, blocks and copies that come late."""
    trial = Trial(CASES[name], tmp_path)
    for seed in (0, 1):
        of_logits, of_cache = trial.largest_errors(seed)
        assert of_logits <= LARGEST_ERROR
        assert of_cache <= 0.01
    assert bool((trial.step.clocks.sum(0) > 0).all()) == trial.case.profile
