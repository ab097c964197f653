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
        tl.store(source + half, rotated_low)
        tl.store(source + DIM // 2 + half, rotated_high)
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
    """Norm (where the model has it) and rotate the heads of qkv, (T, (heads + 2 kv_heads) * dim), in place; keys and
    values go to their slots in `pages` too, (blocks, page, kv_heads, dim) each with one block stride.
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


@triton.jit
def _begin_kernel(ids, embed, norm, x, scaled, marks, num_marks, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < HIDDEN
    token = tl.load(ids + row).to(tl.int64)
    values = tl.load(embed + token * HIDDEN + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(x + row * HIDDEN + columns, values, mask=mask)
    values *= tl.load(norm + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(scaled + row * HIDDEN + columns, values.to(scaled.dtype.element_ty), mask=mask)
    for start in range(row * BLOCK, num_marks, tl.num_programs(0) * BLOCK):
        tl.store(marks + start + columns, 0, mask=start + columns < num_marks)


def begin_step(
    ids: torch.Tensor,
    embed: torch.Tensor,
    norm: torch.Tensor,
    x: torch.Tensor,
    scaled: torch.Tensor,
    marks: torch.Tensor,
) -> None:
    """Put the embeddings of ids, (rows,), into x and, times the first norm's weights, into `scaled`; clear `marks`."""
    hidden = x.shape[1]
    _begin_kernel[(len(ids),)](
        ids, embed, norm, x, scaled, marks, marks.numel(), HIDDEN=hidden, BLOCK=triton.next_power_of_2(hidden)
    )


@triton.jit
def _largest_kernel(logits, best, best_id, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(logits + row * WIDTH + columns, mask=columns < WIDTH, other=float("-inf")).to(tl.float32)
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
