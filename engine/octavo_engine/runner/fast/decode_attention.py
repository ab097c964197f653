"""Attention of decoding rows, one new token each: by flash-attn, or by an own kernel where that is right and faster."""

import logging
from functools import partial
from typing import Protocol

import torch

from octavo_engine.runner.fast.cuda_module import CudaModuleError
from octavo_engine.runner.fast.fused import LARGEST_ERROR, relative_errors
from octavo_engine.runner.fast.graph_memory import GraphMemory
from octavo_engine.runner.fast.ragged import RaggedAttention, why_not_ragged
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

log = logging.getLogger(__name__)
NUM_ROWS, LONGEST = 64, 2048
"""Of the batch that both are tried on."""
EDGES = (1, 2, 15, 16, 17, 64, 65, 255, 256, 257, 511, 512, 513)
"""Lengths that are among those of the batch."""
SHARPNESS = 3.0
"""Of scores, their standard deviation: a few tokens of a row have much of its weight, so that none may be missed."""
NUM_CALLS, NUM_TIMES = 8, 3
"""In a graph, as what the host takes to launch one is not asked; the best time of so many is taken."""


class DecodeAttention(Protocol):
    """Attention of one token a row, whose keys and values are in the cache already; can be captured in a graph."""

    def __call__(
        self, q: torch.Tensor, pages: tuple[torch.Tensor, torch.Tensor], lengths: torch.Tensor, tables: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of q, (rows, heads, dim), over the first `lengths` tokens, (rows,), 1 or more, of tables, (rows, width).

        Returns (rows, heads, dim), and the logarithms of the weights' sums, (rows, heads), float32.
        """


class FlashDecode:
    """See DecodeAttention."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def __call__(
        self, q: torch.Tensor, pages: tuple[torch.Tensor, torch.Tensor], lengths: torch.Tensor, tables: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See DecodeAttention."""
        from flash_attn import flash_attn_with_kvcache

        out, log_weights = flash_attn_with_kvcache(
            q[:, None], *pages, cache_seqlens=lengths, block_table=tables, softmax_scale=self._scale, causal=True,
            return_softmax_lse=True,
        )  # fmt: skip
        return out[:, 0], log_weights[..., 0]


def load_ragged(w: FastWeights, block_size: int) -> RaggedAttention | None:
    """The own kernel; None, with the reason in the log, where it cannot be had. It takes seconds to compile."""
    reason = why_not_ragged(w, block_size)
    try:
        if not reason:
            return RaggedAttention(w, block_size)
    except CudaModuleError as error:
        reason = str(error)
    log.info("many rows are decoded with flash-attn: %s", reason)
    return None


@torch.inference_mode()
def choose_attention(ragged: RaggedAttention | None, w: FastWeights, cache: KVCache) -> DecodeAttention:
    """The own kernel where it says what flash-attn says and takes less time for it, else flash-attn.

    Blocks of the pool are written to, so nobody may use them yet.
    """
    flash = FlashDecode(w.scale)
    if ragged is None:
        return flash
    batch = random_rows(w, cache)
    try:
        error = largest_error(ragged, flash, batch)
        if not error < LARGEST_ERROR:
            log.warning("many rows are decoded with flash-attn: the own attention differs from it by %.3f", error)
            return flash
        ours, theirs = times((ragged, flash), batch, GraphMemory(w.head, 1))
    except CudaModuleError as reason:
        log.info("many rows are decoded with flash-attn: %s", reason)
        return flash
    log.info(
        "attention of %d rows: own kernel %.1f us, flash-attn %.1f us, relative error %.4f between them",
        NUM_ROWS, ours, theirs, error,
    )  # fmt: skip
    return ragged if ours < theirs else flash


Rows = tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor], torch.Tensor, torch.Tensor]
"""What a DecodeAttention takes."""


def random_rows(w: FastWeights, cache: KVCache) -> Rows:
    """Over random keys and values in the first layer; a small pool gives its blocks several times.

    Lengths come in no order, as in a batch: it matters to flash-attn whether the longest row is the last.
    """
    device, dtype, size = cache.data.device, cache.data.dtype, cache.block_size
    longest = min(LONGEST, len(w.cos), cache.scratch_block * size)
    num_even = NUM_ROWS - len(EDGES)
    spread = [1 + (longest - 1) * row // (num_even - 1) for row in range(num_even)]
    chance, random = (torch.Generator(where).manual_seed(0) for where in ("cpu", device))
    lengths = torch.tensor([*EDGES, *spread], dtype=torch.int32).clamp(max=longest)
    lengths = lengths[torch.randperm(NUM_ROWS, generator=chance)]
    width = -(-longest // size)
    num_used = min(NUM_ROWS * width, cache.scratch_block)
    tables = (torch.randperm(NUM_ROWS * width, generator=chance) % num_used).view(NUM_ROWS, width).int()
    keys, values = cache.layer(0)
    for pages in (keys, values):
        pages[:num_used].normal_(generator=random)
    num_merged = w.num_heads + 2 * w.num_kv_heads
    q = torch.randn(NUM_ROWS, num_merged, w.head_dim, dtype=dtype, device=device, generator=random)[:, : w.num_heads]
    q *= SHARPNESS / (w.scale * w.head_dim**0.5)
    return q, (keys, values), lengths.to(device), tables.to(device)


def largest_error(ours: DecodeAttention, theirs: DecodeAttention, batch: Rows) -> float:
    """Relative, of a row, and absolute of the logarithms; in the second call, too, which finds what the first left."""
    expected, expected_weights = theirs(*batch)
    errors = []
    for _ in range(2):
        out, weights = ours(*batch)
        errors += [relative_errors(out, expected), (weights - expected_weights).abs().amax(1)]
    return float(torch.cat(errors).max().nan_to_num(torch.inf))


def times(attentions: tuple[DecodeAttention, ...], batch: Rows, memory: GraphMemory) -> list[float]:
    """Microseconds that each takes for the batch, in turn."""

    def call(attention: DecodeAttention) -> None:
        for _ in range(NUM_CALLS):
            attention(*batch)

    graphs = [memory.capture(partial(call, attention)) for attention in attentions]
    taken = [[_microseconds(graph) for graph in graphs] for _ in range(1 + NUM_TIMES)]
    return [min(of_one) for of_one in zip(*taken[1:], strict=True)]


def _microseconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / NUM_CALLS
