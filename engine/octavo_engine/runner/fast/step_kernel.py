"""A whole decode step of a few rows in one persistent Triton kernel.

Every program of the grid stays on its multiprocessor and walks all layers; between two phases the programs meet at a
barrier in global memory. A layer has five phases: normed QKV; attention over the cache (norm and rotary of the heads,
the new token's cache write, and the merge of its splits by whoever comes last); output projection with residual;
normed gate and up with activation; down projection with residual. What a phase multiplies with is known before its
input is, so each program loads its first weights (or cached keys and values) and only then waits at the barrier.

The grid must fit on the device at once: one program a multiprocessor, launched as a cooperative grid, which fails
rather than hangs where it does not fit. The idea of walking a whole forward pass in one kernel is that of Hazy
Research's Llama megakernel (2025).
"""

import triton
import triton.language as tl

from octavo_engine.runner.fast.step_attention_kernel import attend_split, merge_splits, pages_of
from octavo_engine.runner.fast.step_projection_kernel import (
    ADD,
    STORE,
    four_pieces,
    norm_factors,
    project,
    project_gated,
)

PHASES = ("qkv", "attention", "out", "gate_up", "down", "head")

ARRIVE_AND_WAIT = tl.constexpr(
    """
    {
    .reg .pred p;
    .reg .b32 t;
    mov.u32 t, %tid.x;
    setp.ne.u32 p, t, 0;
    @p bra DONE;
    red.release.gpu.global.add.u32 [$1], 1;
    WAIT:
    ld.acquire.gpu.global.u32 t, [$1];
    setp.lt.s32 p, t, $2;
    @p bra WAIT;
    DONE:
    mov.u32 $0, 0;
    }
    """
)


@triton.jit
def _barrier(counter, target, IS_WHOLE: tl.constexpr):
    """Wait until all programs came; what they stored before is visible after. Nothing to wait for in a single phase.

    The first thread raises the counter (release) and waits for it to reach the target (acquire); the two barriers of
    the program around it make that hold for all its threads.
    """
    if IS_WHOLE:
        tl.debug_barrier()
        tl.inline_asm_elementwise(ARRIVE_AND_WAIT, "=r,l,r", [counter, target], dtype=tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()


@triton.jit
def step_kernel(
    x, scaled, qkv, attended, active, partial, logits, counter, tickets,
    w_qkv, b_qkv, w_out, w_gate_up, w_down, w_head, norms, q_norm, k_norm, cos, sin,
    positions, tables, table_width, cache, page_stride, layer_stride, value_offset, eps, scale,
    first_layer, last_layer,
    ROWS: tl.constexpr, HIDDEN: tl.constexpr, HIDDEN_BLOCK: tl.constexpr, INTER: tl.constexpr, VOCAB: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, PROGRAMS: tl.constexpr, MAX_SPLITS: tl.constexpr, BLOCK: tl.constexpr,
    T_QKV: tl.constexpr, C_QKV: tl.constexpr, T_OUT: tl.constexpr, C_OUT: tl.constexpr,
    T_GATE: tl.constexpr, C_GATE: tl.constexpr, T_DOWN: tl.constexpr, C_DOWN: tl.constexpr,
    T_HEAD: tl.constexpr, C_HEAD: tl.constexpr, PHASE: tl.constexpr,
):  # fmt: skip
    """See the module. x, (ROWS, HIDDEN) float32, is the residual stream, and `scaled` the same times the weights of
    the next norm, which the projections multiply with; the norm's factor is applied to their sums. `norms` holds the
    weights in the order of use, (2 * layers + 1, HIDDEN). T_ and C_ are rows and columns of pieces of weights.

    PHASE -1 runs everything; a phase's number runs only that one (for tests, where a grid cannot meet).
    """
    pid = tl.program_id(0)
    IS_WHOLE: tl.constexpr = PHASE == -1
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * DIM
    WIDTH: tl.constexpr = HEADS * DIM
    ITEMS: tl.constexpr = ROWS * KV_HEADS
    ones = tl.full([ROWS, 1], 1.0, tl.float32)
    met = 0

    item, split = pid % ITEMS, pid // ITEMS
    r, kv_head = item // KV_HEADS, item % KV_HEADS
    position = tl.load(positions + r)
    table = tables + r * table_width
    share: tl.constexpr = min(max(PROGRAMS // ITEMS, 1), MAX_SPLITS)
    length = tl.cdiv(tl.cdiv(position, share), BLOCK) * BLOCK
    num_splits = tl.maximum(tl.cdiv(position, tl.maximum(length, 1)), 1)
    begin = split * length
    end = tl.minimum(position, begin + length)
    place, is_there = pages_of(table, begin + tl.arange(0, BLOCK), end, page_stride, kv_head, KV_HEADS, DIM, PAGE)

    for layer in range(first_layer, last_layer):
        wide = tl.cast(layer, tl.int64)
        if IS_WHOLE or PHASE == 0:
            matrix = w_qkv + wide * QKV * HIDDEN
            w0, w1, w2, w3 = four_pieces(matrix, pid, QKV, 0, T_QKV, C_QKV, HIDDEN)
            if layer > first_layer:
                met += PROGRAMS
                _barrier(counter, met, IS_WHOLE)
            factors = norm_factors(x, eps, ROWS, HIDDEN, HIDDEN_BLOCK)
            project(
                matrix, QKV, w0, w1, w2, w3, scaled, factors, qkv, b_qkv + wide * QKV, x, x, pid,
                ROWS, T_QKV, C_QKV, HIDDEN, PROGRAMS, BIAS, STORE,
            )  # fmt: skip

        if IS_WHOLE or PHASE == 1:
            keys = cache + wide * layer_stride
            values = keys + value_offset
            k = tl.load(keys + place, mask=is_there, other=0.0)
            v = tl.load(values + place, mask=is_there, other=0.0)
            met += PROGRAMS
            _barrier(counter, met, IS_WHOLE)
            if split < num_splits:
                row_partial = partial + r * HEADS * MAX_SPLITS * (DIM + 2)
                attend_split(
                    qkv + r * QKV, k, v, q_norm + wide * DIM, k_norm + wide * DIM, cos, sin, table, position, keys,
                    values, row_partial, kv_head, split, num_splits, begin, end, eps, scale, page_stride,
                    HEADS, KV_HEADS, DIM, PAGE, BLOCK, MAX_SPLITS, NORM,
                )  # fmt: skip
                tl.debug_barrier()
                ticket = tl.atomic_add(tickets + layer * ITEMS + item, 1, sem="acq_rel", scope="gpu")
                if ticket == num_splits - 1:
                    merge_splits(
                        row_partial, attended + r * WIDTH, kv_head, num_splits, HEADS, KV_HEADS, DIM, MAX_SPLITS
                    )

        if IS_WHOLE or PHASE == 2:
            matrix = w_out + wide * HIDDEN * WIDTH
            w0, w1, w2, w3 = four_pieces(matrix, pid, HIDDEN, 0, T_OUT, C_OUT, WIDTH)
            met += PROGRAMS
            _barrier(counter, met, IS_WHOLE)
            project(
                matrix, HIDDEN, w0, w1, w2, w3, attended, ones, x, x, scaled, norms + (2 * layer + 1) * HIDDEN, pid,
                ROWS, T_OUT, C_OUT, WIDTH, PROGRAMS, False, ADD,
            )  # fmt: skip

        if IS_WHOLE or PHASE == 3:
            matrix = w_gate_up + wide * 2 * INTER * HIDDEN
            upper = matrix + INTER * HIDDEN
            w0, w1, w2, w3 = four_pieces(matrix, pid, INTER, 0, T_GATE, C_GATE, HIDDEN)
            u0, u1, u2, u3 = four_pieces(upper, pid, INTER, 0, T_GATE, C_GATE, HIDDEN)
            met += PROGRAMS
            _barrier(counter, met, IS_WHOLE)
            factors = norm_factors(x, eps, ROWS, HIDDEN, HIDDEN_BLOCK)
            project_gated(
                matrix, upper, INTER, w0, w1, w2, w3, u0, u1, u2, u3, scaled, factors, active, pid,
                ROWS, T_GATE, C_GATE, HIDDEN, PROGRAMS,
            )  # fmt: skip

        if IS_WHOLE or PHASE == 4:
            matrix = w_down + wide * HIDDEN * INTER
            w0, w1, w2, w3 = four_pieces(matrix, pid, HIDDEN, 0, T_DOWN, C_DOWN, INTER)
            met += PROGRAMS
            _barrier(counter, met, IS_WHOLE)
            project(
                matrix, HIDDEN, w0, w1, w2, w3, active, ones, x, x, scaled, norms + (2 * layer + 2) * HIDDEN, pid,
                ROWS, T_DOWN, C_DOWN, INTER, PROGRAMS, False, ADD,
            )  # fmt: skip

    if IS_WHOLE or PHASE == 5:
        w0, w1, w2, w3 = four_pieces(w_head, pid, VOCAB, 0, T_HEAD, C_HEAD, HIDDEN)
        met += PROGRAMS
        _barrier(counter, met, IS_WHOLE)
        factors = norm_factors(x, eps, ROWS, HIDDEN, HIDDEN_BLOCK)
        project(
            w_head, VOCAB, w0, w1, w2, w3, scaled, factors, logits, x, x, x, pid,
            ROWS, T_HEAD, C_HEAD, HIDDEN, PROGRAMS, False, STORE,
        )  # fmt: skip
