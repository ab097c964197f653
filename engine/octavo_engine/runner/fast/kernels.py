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
    BLOCK: tl.constexpr,
):  # fmt: skip
    """BLOCK heads of one token, of which each is a query, a key or a value."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    half = tl.arange(0, DIM // 2)[None, :]
    is_there = head < HEADS + 2 * KV_HEADS
    is_key = (head >= HEADS) & (head < HEADS + KV_HEADS)
    source = qkv + (token * (HEADS + 2 * KV_HEADS) + head) * DIM + half
    slot = tl.load(slots + token).to(tl.int64)
    place = slot // PAGE * page_stride + slot % PAGE * KV_HEADS * DIM + half
    low_cached = tl.load(source, mask=is_there, other=0.0)
    high_cached = tl.load(source + DIM // 2, mask=is_there, other=0.0)
    offset = place + (head - HEADS - KV_HEADS) * DIM
    is_value = is_there & (head >= HEADS + KV_HEADS)
    tl.store(values + offset, low_cached, mask=is_value)
    tl.store(values + offset + DIM // 2, high_cached, mask=is_value)
    low, high = low_cached.to(tl.float32), high_cached.to(tl.float32)
    if NORM:
        factor = tl.rsqrt((tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)) / DIM + eps)[:, None]
        low *= factor * tl.where(is_key, tl.load(k_norm + half), tl.load(q_norm + half)).to(tl.float32)
        high_half = half + DIM // 2
        high *= factor * tl.where(is_key, tl.load(k_norm + high_half), tl.load(q_norm + high_half)).to(tl.float32)
    turn = tl.load(positions + token).to(tl.int64) * DIM + half
    cos_low, cos_high = tl.load(cos + turn), tl.load(cos + turn + DIM // 2)
    sin_low, sin_high = tl.load(sin + turn), tl.load(sin + turn + DIM // 2)
    rotated_low = (low * cos_low - high * sin_low).to(qkv.dtype.element_ty)
    rotated_high = (high * cos_high + low * sin_high).to(qkv.dtype.element_ty)
    is_turned = head < HEADS + KV_HEADS
    tl.store(source, rotated_low, mask=is_turned)
    tl.store(source + DIM // 2, rotated_high, mask=is_turned)
    offset = place + (head - HEADS) * DIM
    tl.store(keys + offset, rotated_low, mask=is_key)
    tl.store(keys + offset + DIM // 2, rotated_high, mask=is_key)


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
    """Norm (where the model has it) and rotate the heads of qkv, (T, (heads + 2 kv_heads) * dim), in place; keys and
    values go to their slots in `pages` too, (blocks, page, kv_heads, dim) each with one block stride.
    """
    keys, values = pages
    page, num_kv_heads, dim = keys.shape[1:]
    q_norm, k_norm = norms or (qkv, qkv)
    block = min(8, triton.next_power_of_2(num_heads + 2 * num_kv_heads))
    _rotary_cache_kernel[(len(qkv), triton.cdiv(num_heads + 2 * num_kv_heads, block))](
        qkv, q_norm, k_norm, *tables, positions, slots, keys, values, keys.stride(0), eps,
        HEADS=num_heads, KV_HEADS=num_kv_heads, DIM=dim, PAGE=page, NORM=norms is not None, BLOCK=block, num_warps=4,
    )  # fmt: skip


@triton.jit
def _merge_kernel(
    common, common_weights, own, own_weights, lengths, out, num_rows, HEADS: tl.constexpr, DIM: tl.constexpr
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    place = (row * HEADS + head) * DIM + tl.arange(0, DIM)
    is_shared = tl.load(lengths + row) > 0
    difference = tl.load(own_weights + row * HEADS + head) - tl.load(common_weights + head * num_rows + row)
    share = tl.where(is_shared, 1 / (1 + tl.exp(difference)), 0.0)
    first = tl.where(is_shared, tl.load(common + place).to(tl.float32), 0.0)
    second = tl.load(own + place).to(tl.float32)
    tl.store(out + place, (share * first + (1 - share) * second).to(out.dtype.element_ty))


def merge_parts(
    common: torch.Tensor,
    common_weights: torch.Tensor,
    own: torch.Tensor,
    own_weights: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """Attention over two sets of keys from that over each, (rows, heads, dim), and the logarithms of their weights,
    (heads, rows) and (rows, heads); rows whose `lengths`, (rows,), are 0 have no first part.
    """
    rows, heads, dim = common.shape
    out = torch.empty_like(common)
    _merge_kernel[(rows, heads)](
        common, common_weights, own.contiguous(), own_weights, lengths, out, rows, HEADS=heads, DIM=dim, num_warps=1
    )
    return out


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


@triton.jit
def _largest_kernel(logits, best, best_id, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(logits + row * WIDTH + columns, mask=columns < WIDTH, other=float("-inf")).to(tl.float32)
    values = tl.where(values == values, values, float("-inf"))  # no number would win as an id past the last
    place = row * tl.num_programs(1) + part
    tl.store(best + place, tl.max(values, axis=0))
    tl.store(best_id + place, part * BLOCK + tl.argmax(values, axis=0))


@triton.jit
def _advance_kernel(
    best, best_id, drawn, ids, positions, replied, step, out, num_parts, num_rows,
    BLOCK: tl.constexpr, IS_GREEDY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    if IS_GREEDY:
        parts = tl.arange(0, BLOCK)
        values = tl.load(best + row * num_parts + parts, mask=parts < num_parts, other=float("-inf"))
        token = tl.load(best_id + row * num_parts + tl.argmax(values, axis=0))
    else:
        token = tl.load(drawn + row).to(tl.int32)
    tl.store(out + tl.load(step + row) * num_rows + row, token)
    tl.store(ids + row, token)
    tl.store(positions + row, tl.load(positions + row) + 1)
    tl.store(replied + row, tl.load(replied + row) + 1)
    tl.store(step + row, tl.load(step + row) + 1)


class Advance:
    """Ends a decode step of a CUDA graph: takes the largest logit or what was drawn, and moves all rows on."""

    BLOCK = 2048

    def __init__(self, num_rows: int, vocabulary: int, device: torch.device) -> None:
        self._num_parts = triton.cdiv(vocabulary, self.BLOCK)
        self._best = torch.empty(num_rows, self._num_parts, device=device)
        self._best_id = torch.empty(num_rows, self._num_parts, dtype=torch.int32, device=device)

    def __call__(self, logits: torch.Tensor, drawn: torch.Tensor | None, state: tuple[torch.Tensor, ...]) -> None:
        """`state`: ids, positions, replied and step, (rows,) each, and out, (steps, rows); all int32."""
        rows, vocabulary = logits.shape
        if drawn is None:
            _largest_kernel[(rows, self._num_parts)](
                logits, self._best, self._best_id, WIDTH=vocabulary, BLOCK=self.BLOCK
            )
        _advance_kernel[(rows,)](
            self._best, self._best_id, self._best if drawn is None else drawn, *state, self._num_parts, rows,
            BLOCK=triton.next_power_of_2(self._num_parts), IS_GREEDY=drawn is None, num_warps=1,
        )  # fmt: skip
