"""Launches each own kernel on small shapes with odd edges, for a memory checker.

Nothing here but our kernels runs on the GPU: no model is loaded, and tensors are made on the CPU, because a checker
takes its time for each module of each library that it meets.
"""

import sys
import time
from collections.abc import Callable, Iterator

import torch
from tests.engine.reference_step import random_weights

from octavo_engine.runner.fast.kernels import Advance, merge_parts, rms_norm, rotary_to_cache, silu_mul
from octavo_engine.runner.fast.ragged import RaggedAttention
from octavo_engine.runner.fast.step import NUM_ROWS, FusedStep, StepKernels
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache, KVShape

LAYERS, HIDDEN, HEADS, KV_HEADS, DIM, INTERMEDIATE, VOCABULARY, CONTEXT = 2, 72, 2, 1, 64, 88, 100, 320
"""Sizes that are no multiples of a tile, so that masks matter."""
MANY_HEADS = 17
"""Of eight rows more than an H200 has multiprocessors, so that cached keys and values come through the queue."""
PAGE = 256
POSITIONS = [300, 0]
"""One row whose cached tokens lie in two blocks and several splits, and one without any."""
Launches = Iterator[tuple[str, Callable[[], object]]]


def make_weights(device: torch.device, heads: int = HEADS, kv_heads: int = KV_HEADS) -> FastWeights:
    return random_weights(
        hidden=HIDDEN, intermediate=INTERMEDIATE, vocabulary=VOCABULARY, layers=LAYERS, heads=heads, kv_heads=kv_heads,
        dim=DIM, has_head_norm=True, has_bias=True, context=CONTEXT, device=device,
    )  # fmt: skip


def decode_step(w: FastWeights, kernels: StepKernels, count: int) -> Callable[[], object]:
    """A step of rows at the first of POSITIONS, which share a block, and as many at the second.

    Buffers and cache are no larger than they must be.
    """
    device, half = w.embed.device, -(-count // 2)
    shape = KVShape(num_layers=LAYERS, num_kv_heads=w.num_kv_heads, head_dim=DIM, dtype=torch.bfloat16)
    cache = KVCache(shape, 2 * count, PAGE, device)
    ids, positions = (
        torch.tensor([values[row >= half] for row in range(count)], dtype=torch.int32).to(device)
        for values in ([5, VOCABULARY - 1], POSITIONS)
    )
    tables = torch.arange(2 * count, dtype=torch.int32).view(count, 2)
    leads = torch.zeros(2, count, dtype=torch.int32)
    if half > 1:
        tables[:half, 0], leads[0, :half] = 0, PAGE
    given, fused = (ids, positions, tables.to(device), leads.to(device)), FusedStep(w, cache, kernels, count)
    return lambda: fused(*given)


def ragged_attention(w: FastWeights, lengths: list[int]) -> Callable[[], object]:
    """Of rows whose blocks are as few as can be."""
    device, width = w.embed.device, -(-max(lengths) // PAGE)
    shape = KVShape(num_layers=LAYERS, num_kv_heads=KV_HEADS, head_dim=DIM, dtype=torch.bfloat16)
    cache = KVCache(shape, len(lengths) * width - 1, PAGE, device)
    tables = torch.arange(len(lengths) * width, dtype=torch.int32).view(len(lengths), width).to(device)
    q = torch.randn(len(lengths), HEADS + 2 * KV_HEADS, DIM).bfloat16().to(device)[:, :HEADS]
    attention, on_device = RaggedAttention(w, PAGE), torch.tensor(lengths, dtype=torch.int32).to(device)
    return lambda: attention(q, cache.layer(LAYERS - 1), on_device, tables)


def launches(device: torch.device) -> Launches:
    """Each kernel's name and a call that launches it."""
    w, rows = make_weights(device), len(POSITIONS)
    shape = KVShape(num_layers=LAYERS, num_kv_heads=KV_HEADS, head_dim=DIM, dtype=torch.bfloat16)
    cache = KVCache(shape, 4, PAGE, device)
    ids, positions, slots, *counts = (
        torch.tensor(values, dtype=torch.int32).to(device)
        for values in ([5, VOCABULARY - 1], POSITIONS, [PAGE + 44, 2 * PAGE], [0, 0], [0, 0])
    )
    x, delta = w.embed[:rows].clone(), w.embed[rows : 2 * rows].clone()
    qkv = torch.randn(rows, (HEADS + 2 * KV_HEADS) * DIM).bfloat16().to(device)
    gate_up = torch.randn(rows, 2 * INTERMEDIATE).bfloat16().to(device)
    logits = torch.randn(rows, VOCABULARY).to(device)
    out = torch.zeros(4, rows, dtype=torch.int32).to(device)
    state = (ids, positions, *counts, out)
    assert w.q_norm is not None
    assert w.k_norm is not None
    norms = w.q_norm[0], w.k_norm[0]
    advance, kernels = Advance(rows, VOCABULARY, device), StepKernels(w, PAGE)
    yield "rms_norm", lambda: rms_norm(x, None, w.norms[0], w.eps)
    yield "rms_norm with residual", lambda: rms_norm(x, delta, w.norms[0], w.eps)
    yield "silu_mul", lambda: silu_mul(gate_up)
    yield (
        "rotary_to_cache",
        lambda: rotary_to_cache(qkv, norms, (w.cos, w.sin), positions, slots, cache.layer(1), HEADS, w.eps),
    )
    for count in NUM_ROWS:
        yield f"decode step of {count}", decode_step(w, kernels, count)
    many, most = make_weights(device, MANY_HEADS, MANY_HEADS), NUM_ROWS[-1]
    yield f"decode step of {most} with many KV heads", decode_step(many, StepKernels(many, PAGE, (most,)), most)
    yield "attention of many rows", ragged_attention(w, [1, 16, 17, 255, 256, 257, 700, 40, 512])
    yield "attention of more blocks than a row", ragged_attention(w, [1, 9000])
    yield "advance, greedy", lambda: advance(logits, None, state)
    lengths = torch.tensor([0, 4], dtype=torch.int32).to(device)
    part, weights = torch.randn(rows, HEADS, DIM).bfloat16().to(device), torch.randn(rows, HEADS).to(device)
    yield "merge of two parts", lambda: merge_parts(part, weights.T.contiguous(), part, weights, lengths)
    yield "advance, drawn", lambda: advance(logits, ids.clone(), state)


@torch.inference_mode()
def main() -> None:
    begin = time.perf_counter()
    for name, launch in launches(torch.device("cuda")):
        launch()
        launch()  # a decode step takes turns with its buffers
        torch.cuda.synchronize()
        sys.stdout.write(f"{time.perf_counter() - begin:6.1f} s  {name}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
