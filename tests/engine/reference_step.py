"""One decode step in plain torch, rounded to bfloat16 where the kernel does, and random weights for it."""

from math import e, log2

import torch

from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.kv_cache import KVCache

CPU = torch.device("cpu")
LOG2E = log2(e)


def random_weights(
    *,
    hidden: int,
    intermediate: int,
    vocabulary: int,
    layers: int,
    heads: int,
    kv_heads: int,
    dim: int,
    has_head_norm: bool,
    has_bias: bool,
    context: int,
    device: torch.device = CPU,
) -> FastWeights:
    """Of sizes that keep all numbers near one; made on the CPU, whatever the device."""

    def some(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(shape) * scale).bfloat16().to(device)

    def matrix(*shape: int) -> torch.Tensor:
        return some(*shape, scale=shape[-1] ** -0.5)

    def norm(*shape: int) -> torch.Tensor:
        return (1 + 0.2 * torch.randn(shape)).bfloat16().to(device)

    width, kv_width = heads * dim, kv_heads * dim
    angles = torch.arange(context)[:, None] * 100.0 ** -(torch.arange(dim) % (dim // 2) / dim)
    return FastWeights(
        embed=some(vocabulary, hidden),
        head=matrix(vocabulary, hidden),
        norms=norm(2 * layers + 1, hidden),
        qkv=matrix(layers, width + 2 * kv_width, hidden),
        qkv_bias=some(layers, width + 2 * kv_width, scale=0.5) if has_bias else None,
        q_norm=norm(layers, dim) if has_head_norm else None,
        k_norm=norm(layers, dim) if has_head_norm else None,
        o=matrix(layers, hidden, width),
        gate_up=matrix(layers, 2 * intermediate, hidden),
        down=matrix(layers, hidden, intermediate),
        cos=angles.cos().to(device),
        sin=angles.sin().to(device),
        eps=1e-5,
        scale=2 * dim**-0.5,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
    )


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def reference_step(
    w: FastWeights, cache: KVCache, ids: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor
) -> torch.Tensor:
    """Logits, (rows, vocabulary), of ids at positions, (rows,) each, over tables, (rows, width); writes their KV."""
    rows = zip(ids.tolist(), positions.tolist(), tables.tolist(), strict=True)
    return torch.stack([one_row(w, cache, *row) for row in rows])


def one_row(w: FastWeights, cache: KVCache, token: int, position: int, table: list[int]) -> torch.Tensor:
    x = w.embed[token].float()
    for layer, part in enumerate(w.layers):
        qkv = product(x, part.norm, part.qkv, w.eps)
        if part.qkv_bias is not None:
            qkv += part.qkv_bias.float()
        keys, values = (pages[table].flatten(0, 1) for pages in cache.layer(layer))  # (tokens, KV heads, dim)
        q, k, v = turned_heads(w, layer, qkv, position)
        cache.layer(layer)[0][table[position // cache.block_size], position % cache.block_size] = k.bfloat16()
        cache.layer(layer)[1][table[position // cache.block_size], position % cache.block_size] = v.bfloat16()
        keys, values = torch.cat([keys[:position], k[None]]), torch.cat([values[:position], v[None]])
        x = x + rounded(attention(q, keys.float(), values.float(), w.scale)) @ part.o.float().T
        gate, up = product(x, part.mlp_norm, part.gate_up, w.eps).chunk(2)
        x = x + rounded(torch.nn.functional.silu(gate) * up) @ part.down.float().T
    return product(x, w.norms[-1], w.head, w.eps)


def product(x: torch.Tensor, norm: torch.Tensor, matrix: torch.Tensor, eps: float) -> torch.Tensor:
    """Of a matrix and the norm of x, (hidden,); the kernel rounds x before it knows its size."""
    return rounded(x * norm.float()) @ matrix.float().T * torch.rsqrt(x.square().mean() + eps)


def turned_heads(
    w: FastWeights, layer: int, qkv: torch.Tensor, position: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, (heads, dim), and k and v, (KV heads, dim), as the cache holds them."""
    counts = [w.num_heads, w.num_kv_heads, w.num_kv_heads]
    q, k, v = torch.split(qkv.view(-1, w.head_dim), counts)
    norms = w.layers[layer].head_norms
    if norms is not None:
        q, k = (normed(heads, norm, w.eps) for heads, norm in zip((q, k), norms, strict=True))
    q, k = (turned(heads, w.cos[position], w.sin[position]) for heads in (q, k))
    return q, rounded(k), rounded(v)


def normed(heads: torch.Tensor, norm: torch.Tensor, eps: float) -> torch.Tensor:
    return heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + eps) * norm.float()


def turned(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = heads.chunk(2, -1)
    return heads * cos + torch.cat([-high, low], -1) * sin


def attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Of q, (heads, dim), over keys and values, (tokens, KV heads, dim): (width,). Scores are logarithms to base 2."""
    groups = rounded(q * (scale * LOG2E)).view(keys.shape[1], -1, q.shape[1])
    scores = torch.einsum("kgd,tkd->kgt", groups, keys) / LOG2E
    return torch.einsum("kgt,tkd->kgd", scores.softmax(-1), values).flatten()
