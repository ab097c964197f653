"""The forward pass of merged weights for any rows of tokens: cuBLAS products between fused kernels."""

from collections.abc import Callable

import torch
import torch.nn.functional as functional

from octavo_engine.runner.fast.kernels import rms_norm, rotary_to_cache, silu_mul
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

Pair = tuple[torch.Tensor, torch.Tensor]
Attend = Callable[[torch.Tensor, Pair, Pair], torch.Tensor]
"""q, (T, heads, dim), its own tokens' keys and values, and the pages of a layer, to (T, heads, dim)."""


def forward_rows(
    w: FastWeights,
    cache: KVCache,
    ids: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor | None,
    attend: Attend,
    logits: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write the KV of ids, (T,), at positions to slots, and return the logits of `rows` (None: of all) of them.

    Returns (rows, vocabulary), in the place `logits` where that is given. Nothing in it waits for the device, so it can
    be captured in a graph.
    """
    x = functional.embedding(ids, w.embed)
    delta: torch.Tensor | None = None
    shape, heads = (len(ids), -1, w.head_dim), [w.num_heads, w.num_kv_heads, w.num_kv_heads]
    for layer, part in enumerate(w.layers):
        pages = cache.layer(layer)
        hidden = rms_norm(x, delta, part.norm, w.eps)
        qkv = functional.linear(hidden, part.qkv, part.qkv_bias)
        rotary_to_cache(qkv, part.head_norms, (w.cos, w.sin), positions, slots, pages, w.num_heads, w.eps)
        q, k, v = torch.split(qkv.view(shape), heads, 1)
        delta = functional.linear(attend(q, (k, v), pages).reshape(len(ids), -1), part.o)
        hidden = rms_norm(x, delta, part.mlp_norm, w.eps)
        delta = functional.linear(silu_mul(functional.linear(hidden, part.gate_up)), part.down)
    if rows is not None:
        assert delta is not None
        x, delta = x[rows], delta[rows]
    return torch.mm(rms_norm(x, delta, w.norms[-1], w.eps), w.head.t(), out=logits)
