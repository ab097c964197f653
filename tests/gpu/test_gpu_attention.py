"""Attention over the paged cache on CUDA against float64, for ragged batches of every head size."""

import pytest
import torch

from octavo_engine.batch import Batch
from octavo_engine.params import SamplingParams
from octavo_engine.runner.attention import AttentionSpec
from octavo_engine.runner.flash import FlashBackend
from octavo_engine.runner.kv_cache import KVCache, KVShape
from octavo_engine.sequence import Sequence

BLOCK = 256
ROWS = [(700, 1), (30, 1), (257, 1), (300, 44), (900, 513), (5, 5), (256, 1)]
"""(tokens of the sequence, tokens of them that are computed now); decoding rows must come first."""


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Attention of the last len(q) tokens in float64; q (n, heads, dim), k and v (context, kv heads, dim)."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (tensor.repeat_interleave(q.shape[1] // tensor.shape[1], 1) for tensor in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * spec.scale
    n, context = len(q), len(k)
    distance = torch.arange(context - n, context, device=q.device)[:, None] - torch.arange(context, device=q.device)
    hidden = (distance < 0) | (distance >= (spec.sliding_window or context))
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (8, 4), (8, 1)])
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
def test_ragged_rows_equal_float64(dim: int, heads: int, kv_heads: int, window: int | None) -> None:
    torch.manual_seed(dim + heads + kv_heads)
    device, rows = torch.device("cuda"), sorted(ROWS, key=lambda row: row[1] > 1)
    shape = KVShape(num_layers=2, num_kv_heads=kv_heads, head_dim=dim, dtype=torch.bfloat16)
    cache = KVCache(shape, 32, BLOCK, device)
    cache.data.fill_(torch.nan)
    backend, batch, expected = FlashBackend(cache), Batch(), []
    free = iter(torch.randperm(32).tolist())
    spec = AttentionSpec(layer=1, scale=dim**-0.5, sliding_window=window)
    total = sum(new for _, new in rows)
    q = torch.randn(total, heads, dim, device=device, dtype=torch.bfloat16)
    k, v = (torch.randn(total, kv_heads, dim, device=device, dtype=torch.bfloat16) for _ in range(2))
    start = 0
    for number, (length, new) in enumerate(rows):
        sequence = Sequence(str(number), range(length), SamplingParams())
        sequence.block_table = [next(free) for _ in range(-(-length // BLOCK))]
        sequence.num_computed = length - new
        old_k, old_v = (torch.randn(length - new, kv_heads, dim, device=device).bfloat16() for _ in range(2))
        for position in range(length - new):
            block, offset = sequence.block_table[position // BLOCK], position % BLOCK
            cache.data[block, 1, 0, offset], cache.data[block, 1, 1, offset] = old_k[position], old_v[position]
        own = slice(start, start + new)
        expected.append(reference(q[own], torch.cat([old_k, k[own]]), torch.cat([old_v, v[own]]), spec))
        batch.add(sequence, new)
        start += new
    backend.begin(batch)
    ours = backend.attend(q, k, v, spec).double()
    theirs = torch.cat(expected)
    assert float((ours - theirs).norm() / theirs.norm()) < 5e-3
