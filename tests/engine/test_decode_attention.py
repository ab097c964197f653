"""The own attention of many rows is taken only where it tells the truth and is faster; stand-ins compute on the CPU."""

import logging
import math
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from octavo_engine.runner.fast import decode_attention
from octavo_engine.runner.fast.cuda_module import CudaModuleError
from octavo_engine.runner.fast.decode_attention import DecodeAttention, choose_attention, load_ragged
from octavo_engine.runner.fast.ragged import RaggedAttention
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache, KVShape

SIZE, HEADS, KV_HEADS, DIM = 256, 4, 2, 16
SCALE = DIM**-0.5
LIES = (
    "louder", "another row's", "not a number", "without the last token", "with one token more", "other weights",
    "wrong the second time",
)  # fmt: skip
Pages = tuple[torch.Tensor, torch.Tensor]


class Reference:
    """A DecodeAttention in plain torch, with a lie."""

    def __init__(self, lie: str = "") -> None:
        self._lie, self._num_calls = lie, 0

    def __call__(
        self, q: torch.Tensor, pages: Pages, lengths: torch.Tensor, tables: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._num_calls += 1
        if self._lie == "cannot be launched":
            raise CudaModuleError("CUDA answered too large")
        if self._lie == "without the last token":
            lengths = (lengths - 1).clamp(min=1)
        if self._lie == "with one token more":
            lengths = lengths + 1
        rows = [self._attend(q[row], pages, int(lengths[row]), tables[row]) for row in range(len(q))]
        out, weights = (torch.stack(parts) for parts in zip(*rows, strict=True))
        is_late = self._lie == "wrong the second time" and self._num_calls > 1
        factor = {"louder": 1.2, "not a number": math.nan}.get(self._lie, 0.0 if is_late else 1.0)
        if self._lie == "other weights":
            weights = weights + 0.5
        return factor * (out.roll(1, 0) if self._lie == "another row's" else out), weights

    def _attend(self, q: torch.Tensor, pages: Pages, length: int, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        keys, values = (
            part[table.long()].flatten(0, 1)[:length].repeat_interleave(HEADS // KV_HEADS, 1) for part in pages
        )
        scores = torch.einsum("hd,khd->hk", q, keys) * SCALE
        return torch.einsum("hk,khd->hd", scores.softmax(-1), values), scores.logsumexp(-1)


def make_weights(context: int = 4096) -> FastWeights:
    sizes = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM}
    return cast(FastWeights, SimpleNamespace(scale=SCALE, cos=torch.zeros(context, 1), head=torch.zeros(8, 1), **sizes))


def choose(
    monkeypatch: pytest.MonkeyPatch, lie: str = "", num_blocks: int = 600, times: tuple[float, float] = (1, 2),
    context: int = 4096,
) -> tuple[DecodeAttention, DecodeAttention]:  # fmt: skip
    """What is chosen, and the own kernel."""
    shape = KVShape(num_layers=2, num_kv_heads=KV_HEADS, head_dim=DIM, dtype=torch.float32)
    cache = KVCache(shape, num_blocks, SIZE, torch.device("cpu"))
    own = Reference(lie)
    monkeypatch.setattr(decode_attention, "FlashDecode", lambda scale: Reference())
    monkeypatch.setattr(decode_attention, "GraphMemory", lambda head, num_rows: None)
    monkeypatch.setattr(decode_attention, "times", lambda *_: times)
    return choose_attention(cast(RaggedAttention, own), make_weights(context), cache), own


def test_an_attention_that_is_right_and_faster_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    chosen, own = choose(monkeypatch)
    assert chosen is own
    assert caplog.messages == [
        "attention of 64 rows: own kernel 1.0 us, flash-attn 2.0 us, relative error 0.0000 between them"
    ]


def test_a_slower_one_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, own = choose(monkeypatch, times=(2, 1))
    assert chosen is not own


@pytest.mark.parametrize("lie", LIES)
def test_one_that_lies_is_not_taken_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lie: str
) -> None:
    chosen, own = choose(monkeypatch, lie)
    assert chosen is not own
    assert "many rows are decoded with flash-attn: the own attention differs from it by" in caplog.text


def test_one_that_cannot_be_launched_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    chosen, own = choose(monkeypatch, "cannot be launched")
    assert chosen is not own
    assert "many rows are decoded with flash-attn: CUDA answered too large" in caplog.text


@pytest.mark.parametrize(("num_blocks", "context"), [(1, 4096), (2, 300), (9, 20), (600, 1)])
def test_a_small_pool_or_context_is_no_reason_against_one(
    monkeypatch: pytest.MonkeyPatch, num_blocks: int, context: int
) -> None:
    chosen, own = choose(monkeypatch, num_blocks=num_blocks, context=context)
    assert chosen is own


@pytest.mark.parametrize("reason", ["its heads are odd", "it does not compile"])
def test_without_an_own_kernel_flash_attn_does_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    def fail(w: FastWeights, block_size: int) -> RaggedAttention:
        raise CudaModuleError("it does not compile")

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(decode_attention, "why_not_ragged", lambda w, block_size: reason if "odd" in reason else "")
    monkeypatch.setattr(decode_attention, "RaggedAttention", fail)
    assert load_ragged(make_weights(), SIZE) is None
    assert caplog.messages == [f"many rows are decoded with flash-attn: {reason}"]
