"""Where the own attention of many rows can serve, and how it shares out a device; no GPU is asked."""

import re
from types import SimpleNamespace

import pytest
import torch
from tests.engine.reference_step import random_weights

from octavo_engine.runner.fast import ragged
from octavo_engine.runner.fast.ragged import RaggedAttention, why_not_ragged
from octavo_engine.runner.fast.weights import FastWeights


def weights(heads: int = 2, kv_heads: int = 1, dim: int = 64) -> FastWeights:
    return random_weights(
        hidden=8, intermediate=8, vocabulary=8, layers=1, heads=heads, kv_heads=kv_heads, dim=dim,
        has_head_norm=False, has_bias=False, context=8,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("capability", "heads", "dim", "block_size", "reason"),
    [
        ((9, 0), 8, 64, 256, ""),
        ((12, 0), 1, 256, 512, ""),
        ((8, 9), 2, 64, 256, "the GPU's compute capability is 8.9, not 9.0 (Hopper) or newer"),
        ((9, 0), 2, 96, 256, "its heads have 96 dimensions, not 64, 128 or 256"),
        ((9, 0), 9, 64, 256, "more than 8 of its heads share a KV head"),
        ((9, 0), 2, 64, 40, "blocks of 40 tokens are not a multiple of 16"),
    ],
)
def test_why_flash_attn_is_left_its_work(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], heads: int, dim: int, block_size: int, reason: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    assert why_not_ragged(weights(heads, 1, dim), block_size) == reason


def test_float16_is_left_to_flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    w = weights()
    w.qkv = w.qkv.half()
    assert why_not_ragged(w, 256) == "it computes in bfloat16"


@pytest.mark.parametrize(
    ("kv_heads", "dim", "shared_kib", "blocks", "threads", "shared_bytes"),
    [
        (32, 128, (227, 228), 10, 256, 8 * 20 << 10),
        (12, 64, (227, 228), 10, 192, 6 * 18 << 10),
        (3, 64, (227, 228), 20, 96, 3 * 18 << 10),
        (1, 64, (227, 228), 80, 32, 18 << 10),
        (13, 128, (227, 228), 80, 32, 20 << 10),
        (8, 256, (227, 228), 10, 256, 8 * 24 << 10),
        (8, 128, (99, 100), 10, 128, 4 * 20 << 10),
    ],
)
def test_a_multiprocessor_has_as_many_warps_as_fit(
    monkeypatch: pytest.MonkeyPatch, kv_heads: int, dim: int, shared_kib: tuple[int, int], blocks: int, threads: int,
    shared_bytes: int,
) -> None:  # fmt: skip
    """Eight at most; a block has one for each of as many KV heads as divide them all."""
    launches: list[tuple[int, int]] = []
    asked: list[int] = []

    def kernel(name: str, shared_bytes: int) -> SimpleNamespace:
        asked.append(shared_bytes)
        return SimpleNamespace(launch=lambda blocks, threads, params: launches.append((blocks, threads)))

    of_block, of_multiprocessor = shared_kib
    device = SimpleNamespace(
        multi_processor_count=10, shared_memory_per_block_optin=of_block << 10,
        shared_memory_per_multiprocessor=of_multiprocessor << 10,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: device)
    monkeypatch.setattr(torch.cuda, "set_device", lambda *_: None)
    monkeypatch.setattr(ragged, "CudaModule", lambda files, defines: SimpleNamespace(kernel=kernel))
    attention = RaggedAttention(weights(kv_heads, kv_heads, dim), 256)
    pages = torch.zeros(2, 256, kv_heads, dim, dtype=torch.bfloat16)
    attention(pages[0, :1], (pages, pages), torch.ones(1, dtype=torch.int32), torch.zeros(1, 1, dtype=torch.int32))
    assert (launches, asked) == ([(blocks, threads)], [shared_bytes])


def test_python_and_the_sources_agree_on_their_constants() -> None:
    text = "\n".join(file.read_text() for file in ragged.FILES)
    constants = dict(re.findall(r"\b([A-Z_]+) = (\d+)[,;]", text))
    ours = {name: getattr(ragged, name) for name in ("MAX_ROWS", "TILE")}
    assert {name: int(constants[name]) for name in ours} == ours
    assert f"GROUP <= {ragged.MAX_GROUP} " in text
