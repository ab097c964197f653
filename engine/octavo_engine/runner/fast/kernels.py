"""Fused Triton kernels for rows of tokens: norms, rotary with cache write, and the gated activation."""

import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm_kernel(x, delta, weight, out, eps, HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < HIDDEN
    values = tl.load(x + row * HIDDEN + columns, mask=mask, other=0.0).to(tl.float32)
    if ADD:
        values += tl.load(delta + row * HIDDEN + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(x + row * HIDDEN + columns, values.to(x.dtype.element_ty), mask=mask)
        values = values.to(x.dtype.element_ty).to(tl.float32)
    factor = tl.rsqrt(tl.sum(values * values, axis=0) / HIDDEN + eps)
    scaled = values * factor * tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * HIDDEN + columns, scaled.to(out.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add `delta` to the residual stream x, (T, hidden), in place, and return its norm times `weight`."""
    out = torch.empty_like(x)
    hidden = x.shape[1]
    block = triton.next_power_of_2(hidden)
    _rms_norm_kernel[(len(x),)](
        x, x if delta is None else delta, weight, out, eps, HIDDEN=hidden, BLOCK=block, ADD=delta is not None,
        num_warps=4 if block <= 2048 else 8,
    )  # fmt: skip
    return out


@triton.jit
def _rotary_cache_kernel(
    qkv, q_norm, k_norm, cos, sin, positions, slots, keys, values, page_stride, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    source = qkv + token * (HEADS + 2 * KV_HEADS) * DIM + head * DIM
    slot = tl.load(slots + token).to(tl.int64)
    place = slot // PAGE * page_stride + slot % PAGE * KV_HEADS * DIM
    if head >= HEADS + KV_HEADS:
        columns = tl.arange(0, DIM)
        offset = place + (head - HEADS - KV_HEADS) * DIM
        tl.store(values + offset + columns, tl.load(source + columns))
    else:
        half = tl.arange(0, DIM // 2)
        low = tl.load(source + half).to(tl.float32)
        high = tl.load(source + DIM // 2 + half).to(tl.float32)
        if NORM:
            weight = k_norm if head >= HEADS else q_norm
            factor = tl.rsqrt((tl.sum(low * low, axis=0) + tl.sum(high * high, axis=0)) / DIM + eps)
            low = low * factor * tl.load(weight + half).to(tl.float32)
            high = high * factor * tl.load(weight + DIM // 2 + half).to(tl.float32)
        position = tl.load(positions + token).to(tl.int64)
        cos_low, cos_high = tl.load(cos + position * DIM + half), tl.load(cos + position * DIM + DIM // 2 + half)
        sin_low, sin_high = tl.load(sin + position * DIM + half), tl.load(sin + position * DIM + DIM // 2 + half)
        rotated_low = (low * cos_low - high * sin_low).to(qkv.dtype.element_ty)
        rotated_high = (high * cos_high + low * sin_high).to(qkv.dtype.element_ty)
        target = source
        if head >= HEADS:
            target = keys + place + (head - HEADS) * DIM
        tl.store(target + half, rotated_low)
        tl.store(target + DIM // 2 + half, rotated_high)


def rotary_to_cache(
    qkv: torch.Tensor,
    norms: tuple[torch.Tensor, torch.Tensor] | None,
    tables: tuple[torch.Tensor, torch.Tensor],
    positions: torch.Tensor,
    slots: torch.Tensor,
    pages: tuple[torch.Tensor, torch.Tensor],
    num_heads: int,
    eps: float,
) -> None:
    """Norm (where the model has it) and rotate the heads of qkv, (T, (heads + 2 kv_heads) * dim); queries stay in
    place, keys and values go to their slots in `pages`, (blocks, page, kv_heads, dim) each with one block stride.
    """
    keys, values = pages
    page, num_kv_heads, dim = keys.shape[1:]
    q_norm, k_norm = norms or (qkv, qkv)
    _rotary_cache_kernel[(len(qkv), num_heads + 2 * num_kv_heads)](
        qkv, q_norm, k_norm, *tables, positions, slots, keys, values, keys.stride(0), eps,
        HEADS=num_heads, KV_HEADS=num_kv_heads, DIM=dim, PAGE=page, NORM=norms is not None, num_warps=1,
    )  # fmt: skip


@triton.jit
def _silu_mul_kernel(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + columns, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=mask)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of gate_up, (T, 2 * width)."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    _silu_mul_kernel[(rows, triton.cdiv(width, 1024))](gate_up, out, WIDTH=width, BLOCK=1024)
    return out
