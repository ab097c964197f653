"""The own attention of many rows on CUDA, in a graph, against float64 and flash-attn, and against itself."""

import pytest
import torch
from tests.engine.reference_step import random_weights
from tests.gpu.stage import make_engine, on_hopper
from tests.gpu.test_gpu_attention import reference

from octavo_engine.runner.attention import AttentionSpec
from octavo_engine.runner.fast import decode_attention
from octavo_engine.runner.fast.decode_attention import FlashDecode, Rows
from octavo_engine.runner.fast.fast_runner import FastRunner
from octavo_engine.runner.fast.fused import relative_errors
from octavo_engine.runner.fast.graph_memory import GraphMemory
from octavo_engine.runner.fast.ragged import RaggedAttention
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache, KVShape

pytestmark = on_hopper
BLOCK = 256
EDGES = [1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1500]
LARGEST_ERROR = 5e-3
"""Relative, of a row, against float64; two kernels may be twice as far from each other."""


def weights(heads: int, kv_heads: int, dim: int) -> FastWeights:
    return random_weights(
        hidden=8, intermediate=8, vocabulary=8, layers=1, heads=heads, kv_heads=kv_heads, dim=dim,
        has_head_norm=False, has_bias=False, context=8, device=torch.device("cuda"),
    )  # fmt: skip


def ragged_rows(w: FastWeights, lengths: list[int]) -> Rows:
    """Queries that are a part of merged rows; numbers that are none wherever no token is."""
    torch.manual_seed(0)
    device, rows, width = w.qkv.device, len(lengths), -(-max(lengths) // BLOCK)
    shape = KVShape(num_layers=2, num_kv_heads=w.num_kv_heads, head_dim=w.head_dim, dtype=torch.bfloat16)
    cache = KVCache(shape, rows * width, BLOCK, device)
    cache.data.fill_(torch.nan)
    tables = torch.randperm(rows * width, device=device).int().view(rows, width)
    pages = cache.layer(1)
    for row, length in enumerate(lengths):
        for start in range(0, length, BLOCK):
            for part in pages:
                part[int(tables[row, start // BLOCK]), : length - start].normal_()
    merged = torch.randn(rows, w.num_heads + 2 * w.num_kv_heads, w.head_dim, device=device) * 2
    return merged.bfloat16()[:, : w.num_heads], pages, torch.tensor(lengths, device=device).int(), tables


@pytest.mark.parametrize(("heads", "kv_heads"), [(32, 32), (12, 12), (16, 8), (9, 3), (14, 2), (8, 1)])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_ragged_rows_equal_float64(dim: int, heads: int, kv_heads: int) -> None:
    w = weights(heads, kv_heads, dim)
    q, pages, lengths, tables = ragged_rows(w, EDGES)
    attention, left = RaggedAttention(w, BLOCK), []
    graph = GraphMemory(w.head, 1).capture(lambda: left.append(attention(q, pages, lengths, tables)))
    for _ in range(3):
        graph.replay()
    out, weights_of_rows = left[-1]
    _, their_weights = FlashDecode(w.scale)(q, pages, lengths, tables)
    for row, length in enumerate(EDGES):
        keys, values = (torch.cat([part[block] for block in tables[row].tolist()])[:length] for part in pages)
        expected = reference(q[row : row + 1], keys, values, AttentionSpec(layer=1, scale=w.scale))
        error = float((out[row : row + 1].double() - expected).norm() / expected.norm())
        assert error < LARGEST_ERROR, f"{length} tokens"
    assert float((weights_of_rows - their_weights).abs().max()) < 1e-3


@pytest.mark.parametrize("num_rows", [9, 40, 256])
def test_many_replays_give_the_same_bits_and_what_flash_attn_gives(num_rows: int) -> None:
    """Who comes last at an item is another each time."""
    w = weights(16, 8, 128)
    batch = ragged_rows(w, [1 + row * 7919 % 2048 for row in range(num_rows)])
    expected, _ = FlashDecode(w.scale)(*batch)
    attention, left = RaggedAttention(w, BLOCK), []
    graph = GraphMemory(w.head, 1).capture(lambda: left.append(attention(*batch)))
    graph.replay()
    out, log_weights = left[-1]
    first, first_weights = out.clone(), log_weights.clone()
    assert float(relative_errors(first, expected).max()) < 2 * LARGEST_ERROR
    for _ in range(200):
        graph.replay()
        assert out.equal(first)
        assert log_weights.equal(first_weights)


def test_an_own_attention_that_lies_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_attention, "times", lambda *_: (1.0, 2.0))
    honest = make_engine("LlamaConfig")._runner
    assert isinstance(honest, FastRunner)
    assert isinstance(honest._attention, RaggedAttention)
    call = RaggedAttention.__call__

    def lie(
        self: RaggedAttention, q: torch.Tensor, pages: tuple[torch.Tensor, torch.Tensor], lengths: torch.Tensor,
        tables: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        out, log_weights = call(self, q, pages, lengths, tables)
        return out * 1.5, log_weights

    monkeypatch.setattr(RaggedAttention, "__call__", lie)
    other = make_engine("LlamaConfig")._runner
    assert isinstance(other, FastRunner)
    assert isinstance(other._attention, FlashDecode)
