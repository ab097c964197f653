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

PHASES = ("qkv", "attention", "out", "gate_up", "down", "head")

STORE = tl.constexpr(0)
ADD = tl.constexpr(1)

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
def _norm_factors(x, eps, ROWS: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    """1 / root mean square of each row, (ROWS, 1)."""
    columns = tl.arange(0, BLOCK)
    numbers = tl.arange(0, ROWS)
    factors = tl.zeros([ROWS], tl.float32)
    for r in tl.static_range(ROWS):
        values = tl.load(x + r * HIDDEN + columns, mask=columns < HIDDEN, other=0.0)
        factor = tl.rsqrt(tl.sum(values * values, axis=0) / HIDDEN + eps)
        factors = tl.where(numbers == r, factor, factors)
    return factors[:, None]


@triton.jit
def _weights(matrix, tile, num_rows, k, T: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    """A piece (T, C) of tile number `tile` of a row-major matrix (num_rows, K); zeros past its edges."""
    row = tile * T + tl.arange(0, T)
    column = k + tl.arange(0, C)
    pointers = matrix + row.to(tl.int64)[:, None] * K + column[None, :]
    mask = (row < num_rows)[:, None]
    if K % (4 * C) != 0:
        mask = mask & (column < K)[None, :]
    return tl.load(pointers, mask=mask, other=0.0, eviction_policy="evict_first")


@triton.jit
def _four(matrix, tile, num_rows, k, T: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    """Four pieces side by side: what a program has under way at once."""
    return (
        _weights(matrix, tile, num_rows, k, T, C, K),
        _weights(matrix, tile, num_rows, k + C, T, C, K),
        _weights(matrix, tile, num_rows, k + 2 * C, T, C, K),
        _weights(matrix, tile, num_rows, k + 3 * C, T, C, K),
    )


@triton.jit
def _input(x, k, T: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    """C values of a row for each of T rows of weights: every thread loads what it multiplies with (from L1), because
    handing the values around inside the program would cost two barriers a piece.
    """
    column = (k + tl.arange(0, C))[None, :]
    return tl.load(x + column + tl.zeros([T, 1], tl.int32), mask=column < K, other=0.0).to(tl.float32)


@triton.jit
def _accumulate(
    sums, total, w0, w1, w2, w3, x, k, ROWS: tl.constexpr, T: tl.constexpr, C: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """Add four pieces' products: a single row keeps them apart until its tile ends, several are summed at once."""
    if ROWS == 1:
        sums += w0.to(tl.float32) * _input(x, k, T, C, K)
        sums += w1.to(tl.float32) * _input(x, k + C, T, C, K)
        sums += w2.to(tl.float32) * _input(x, k + 2 * C, T, C, K)
        sums += w3.to(tl.float32) * _input(x, k + 3 * C, T, C, K)
    else:
        numbers = tl.arange(0, ROWS)
        for r in tl.static_range(ROWS):
            row = x + r * K
            part = w0.to(tl.float32) * _input(row, k, T, C, K)
            part += w1.to(tl.float32) * _input(row, k + C, T, C, K)
            part += w2.to(tl.float32) * _input(row, k + 2 * C, T, C, K)
            part += w3.to(tl.float32) * _input(row, k + 3 * C, T, C, K)
            total += tl.where(numbers == r, 1.0, 0.0)[:, None] * tl.sum(part, axis=1)[None, :]
    return sums, total


@triton.jit
def _project(
    matrix, num_rows, w0, w1, w2, w3, x, factors, target, bias, following_x, following_norm, pid,
    ROWS: tl.constexpr, T: tl.constexpr, C: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr,
    HAS_BIAS: tl.constexpr, END: tl.constexpr,
):  # fmt: skip
    """This program's tiles of matrix (num_rows, K) times each row of x, into `target`, (ROWS, num_rows) float32.

    END is STORE, or ADD: then `target` is the residual stream, and what the next phase multiplies with, the stream
    times its norm's weights, goes to `following_x`. The pieces of the next group are loaded before those of this one
    are used; the very first are given.
    """
    GROUPS: tl.constexpr = (K + 4 * C - 1) // (4 * C)
    numbers = tl.arange(0, ROWS)
    total = tl.zeros([ROWS, T], tl.float32)
    sums = tl.zeros([T, C], tl.float32)
    count = (tl.cdiv(num_rows, T) - pid + PROGRAMS - 1) // PROGRAMS
    for i in range(count * GROUPS):
        tile = pid + i // GROUPS * PROGRAMS
        following = pid + (i + 1) // GROUPS * PROGRAMS
        n0, n1, n2, n3 = _four(matrix, following, num_rows, (i + 1) % GROUPS * 4 * C, T, C, K)
        sums, total = _accumulate(sums, total, w0, w1, w2, w3, x, i % GROUPS * 4 * C, ROWS, T, C, K)
        if (i + 1) % GROUPS == 0:
            if ROWS == 1:
                total = tl.sum(sums, axis=1)[None, :]
            row = tile * T + tl.arange(0, T)
            offsets = numbers[:, None] * num_rows + row[None, :]
            mask = (row < num_rows)[None, :]
            total *= factors
            if HAS_BIAS:
                total += tl.load(bias + row, mask=row < num_rows, other=0.0).to(tl.float32)[None, :]
            if END == ADD:
                total += tl.load(target + offsets, mask=mask, other=0.0)
                norm = tl.load(following_norm + row, mask=row < num_rows, other=0.0).to(tl.float32)
                tl.store(following_x + offsets, (total * norm[None, :]).to(following_x.dtype.element_ty), mask=mask)
            tl.store(target + offsets, total, mask=mask)
            total = tl.zeros([ROWS, T], tl.float32)
            sums = tl.zeros([T, C], tl.float32)
        w0, w1, w2, w3 = n0, n1, n2, n3


@triton.jit
def _project_gated(
    matrix, upper, num_rows, w0, w1, w2, w3, u0, u1, u2, u3, x, factors, target, pid,
    ROWS: tl.constexpr, T: tl.constexpr, C: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """silu(gate) * up: the same walk over two matrices at once."""
    GROUPS: tl.constexpr = (K + 4 * C - 1) // (4 * C)
    numbers = tl.arange(0, ROWS)
    gate, up = tl.zeros([ROWS, T], tl.float32), tl.zeros([ROWS, T], tl.float32)
    gate_sums, up_sums = tl.zeros([T, C], tl.float32), tl.zeros([T, C], tl.float32)
    count = (tl.cdiv(num_rows, T) - pid + PROGRAMS - 1) // PROGRAMS
    for i in range(count * GROUPS):
        tile = pid + i // GROUPS * PROGRAMS
        following = pid + (i + 1) // GROUPS * PROGRAMS
        k, following_k = i % GROUPS * 4 * C, (i + 1) % GROUPS * 4 * C
        n0, n1, n2, n3 = _four(matrix, following, num_rows, following_k, T, C, K)
        m0, m1, m2, m3 = _four(upper, following, num_rows, following_k, T, C, K)
        gate_sums, gate = _accumulate(gate_sums, gate, w0, w1, w2, w3, x, k, ROWS, T, C, K)
        up_sums, up = _accumulate(up_sums, up, u0, u1, u2, u3, x, k, ROWS, T, C, K)
        if (i + 1) % GROUPS == 0:
            if ROWS == 1:
                gate, up = tl.sum(gate_sums, axis=1)[None, :], tl.sum(up_sums, axis=1)[None, :]
            row = tile * T + tl.arange(0, T)
            gate *= factors
            active = (gate * tl.sigmoid(gate) * up * factors).to(target.dtype.element_ty)
            tl.store(target + numbers[:, None] * num_rows + row[None, :], active, mask=(row < num_rows)[None, :])
            gate, up = tl.zeros([ROWS, T], tl.float32), tl.zeros([ROWS, T], tl.float32)
            gate_sums, up_sums = tl.zeros([T, C], tl.float32), tl.zeros([T, C], tl.float32)
        w0, w1, w2, w3 = n0, n1, n2, n3
        u0, u1, u2, u3 = m0, m1, m2, m3


@triton.jit
def _rotated(source, heads, norm, cos, sin, position, eps, num_heads, DIM: tl.constexpr, NORM: tl.constexpr):
    """Heads (rows, DIM) after norm and rotary embedding; each element meets its partner half a head away."""
    column = tl.arange(0, DIM)
    partner = (column + DIM // 2) % DIM
    sign = tl.where(column < DIM // 2, -1.0, 1.0)
    mask = (heads < num_heads)[:, None]
    values = tl.load(source + heads[:, None] * DIM + column[None, :], mask=mask, other=0.0)
    partners = tl.load(source + heads[:, None] * DIM + partner[None, :], mask=mask, other=0.0)
    if NORM:
        factor = tl.rsqrt(tl.sum(values * values, axis=1) / DIM + eps)[:, None]
        values = values * factor * tl.load(norm + column).to(tl.float32)[None, :]
        partners = partners * factor * tl.load(norm + partner).to(tl.float32)[None, :]
    turn = position.to(tl.int64) * DIM + column
    return values * tl.load(cos + turn)[None, :] + partners * sign[None, :] * tl.load(sin + turn)[None, :]


@triton.jit
def _pages(table, token, end, page_stride, kv_head, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr):
    """Where the keys of tokens lie, (tokens, DIM) offsets, and which of the tokens are there."""
    is_there = token < end
    block = tl.load(table + token // PAGE, mask=is_there, other=0).to(tl.int64)
    place = block * page_stride + ((token % PAGE) * KV_HEADS + kv_head) * DIM
    return place[:, None] + tl.arange(0, DIM)[None, :], is_there[:, None]


@triton.jit
def _attend_split(
    qkv, k, v, q_norm, k_norm, cos, sin, table, position, keys, values, partial, kv_head, split, num_splits, begin,
    end, eps, scale, page_stride, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, MAX_SPLITS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """One split of one KV head's attention: sums (DIM), their maximum and weight, for each head of its group.

    The cached tokens are those in begin..end, the first BLOCK of them given as k and v; the new token is taken from
    qkv and counted by the last split, which also writes it to the cache.
    """
    GROUP: tl.constexpr = HEADS // KV_HEADS
    member = tl.arange(0, 16)  # the smallest side of a tensor core's product
    q = _rotated(qkv + kv_head * GROUP * DIM, member, q_norm, cos, sin, position, eps, GROUP, DIM, NORM) * scale
    column = tl.arange(0, DIM)
    highest = tl.full([16], float("-inf"), tl.float32)
    weight = tl.zeros([16], tl.float32)
    sums = tl.zeros([16, DIM], tl.float32)
    if split == num_splits - 1:
        own = qkv + (HEADS + kv_head) * DIM
        new = _rotated(own, tl.arange(0, 1), k_norm, cos, sin, position, eps, 1, DIM, NORM)
        new_k = new.to(keys.dtype.element_ty)
        new_v = tl.load(own + KV_HEADS * DIM + column).to(values.dtype.element_ty)
        block = tl.load(table + position // PAGE).to(tl.int64)
        place = block * page_stride + ((position % PAGE) * KV_HEADS + kv_head) * DIM
        tl.store(keys + place + column[None, :], new_k)
        tl.store(values + place + column, new_v)
        highest = tl.sum(q * new_k.to(tl.float32), axis=1)
        weight += 1.0
        sums += new_v.to(tl.float32)[None, :]
    q = q.to(keys.dtype.element_ty)
    for start in range(begin, end, BLOCK):
        token = start + tl.arange(0, BLOCK)
        if start > begin:
            place, mask = _pages(table, token, end, page_stride, kv_head, KV_HEADS, DIM, PAGE)
            k = tl.load(keys + place, mask=mask, other=0.0)
            v = tl.load(values + place, mask=mask, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee")
        scores = tl.where((token < end)[None, :], scores, float("-inf"))
        raised = tl.maximum(highest, tl.max(scores, axis=1))
        shrink = tl.exp(highest - raised)
        chances = tl.exp(scores - raised[:, None])
        weight = weight * shrink + tl.sum(chances, axis=1)
        sums = sums * shrink[:, None] + tl.dot(chances.to(values.dtype.element_ty), v, input_precision="ieee")
        highest = raised
    is_member = member < GROUP
    target = partial + ((kv_head * GROUP + member) * MAX_SPLITS + split) * (DIM + 2)
    tl.store(target[:, None] + column[None, :], sums, mask=is_member[:, None])
    tl.store(target + DIM, highest, mask=is_member)
    tl.store(target + DIM + 1, weight, mask=is_member)


@triton.jit
def _merge_splits(
    partial, out, kv_head, num_splits,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, MAX_SPLITS: tl.constexpr,
):  # fmt: skip
    GROUP: tl.constexpr = HEADS // KV_HEADS
    column = tl.arange(0, DIM)
    splits = tl.arange(0, MAX_SPLITS)
    is_there = splits < num_splits
    for member in tl.static_range(GROUP):
        head = kv_head * GROUP + member
        source = partial + (head * MAX_SPLITS + splits) * (DIM + 2)
        highest = tl.load(source + DIM, mask=is_there, other=float("-inf"))
        weight = tl.load(source + DIM + 1, mask=is_there, other=0.0)
        rows = tl.load(source[:, None] + column[None, :], mask=is_there[:, None], other=0.0)
        factor = tl.exp(highest - tl.max(highest, axis=0))
        total = tl.sum(rows * factor[:, None], axis=0) / tl.sum(weight * factor, axis=0)
        tl.store(out + head * DIM + column, total.to(out.dtype.element_ty))


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
    place, is_there = _pages(table, begin + tl.arange(0, BLOCK), end, page_stride, kv_head, KV_HEADS, DIM, PAGE)

    for layer in range(first_layer, last_layer):
        wide = tl.cast(layer, tl.int64)
        if IS_WHOLE or PHASE == 0:
            matrix = w_qkv + wide * QKV * HIDDEN
            w0, w1, w2, w3 = _four(matrix, pid, QKV, 0, T_QKV, C_QKV, HIDDEN)
            if layer > first_layer:
                met += PROGRAMS
                _barrier(counter, met, IS_WHOLE)
            factors = _norm_factors(x, eps, ROWS, HIDDEN, HIDDEN_BLOCK)
            _project(
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
                _attend_split(
                    qkv + r * QKV, k, v, q_norm + wide * DIM, k_norm + wide * DIM, cos, sin, table, position, keys,
                    values, row_partial, kv_head, split, num_splits, begin, end, eps, scale, page_stride,
                    HEADS, KV_HEADS, DIM, PAGE, BLOCK, MAX_SPLITS, NORM,
                )  # fmt: skip
                tl.debug_barrier()
                ticket = tl.atomic_add(tickets + layer * ITEMS + item, 1, sem="acq_rel", scope="gpu")
                if ticket == num_splits - 1:
                    _merge_splits(
                        row_partial, attended + r * WIDTH, kv_head, num_splits, HEADS, KV_HEADS, DIM, MAX_SPLITS
                    )

        if IS_WHOLE or PHASE == 2:
            matrix = w_out + wide * HIDDEN * WIDTH
            w0, w1, w2, w3 = _four(matrix, pid, HIDDEN, 0, T_OUT, C_OUT, WIDTH)
            met += PROGRAMS
            _barrier(counter, met, IS_WHOLE)
            _project(
                matrix, HIDDEN, w0, w1, w2, w3, attended, ones, x, x, scaled, norms + (2 * layer + 1) * HIDDEN, pid,
                ROWS, T_OUT, C_OUT, WIDTH, PROGRAMS, False, ADD,
            )  # fmt: skip

        if IS_WHOLE or PHASE == 3:
            matrix = w_gate_up + wide * 2 * INTER * HIDDEN
            upper = matrix + INTER * HIDDEN
            w0, w1, w2, w3 = _four(matrix, pid, INTER, 0, T_GATE, C_GATE, HIDDEN)
            u0, u1, u2, u3 = _four(upper, pid, INTER, 0, T_GATE, C_GATE, HIDDEN)
            met += PROGRAMS
            _barrier(counter, met, IS_WHOLE)
            factors = _norm_factors(x, eps, ROWS, HIDDEN, HIDDEN_BLOCK)
            _project_gated(
                matrix, upper, INTER, w0, w1, w2, w3, u0, u1, u2, u3, scaled, factors, active, pid,
                ROWS, T_GATE, C_GATE, HIDDEN, PROGRAMS,
            )  # fmt: skip

        if IS_WHOLE or PHASE == 4:
            matrix = w_down + wide * HIDDEN * INTER
            w0, w1, w2, w3 = _four(matrix, pid, HIDDEN, 0, T_DOWN, C_DOWN, INTER)
            met += PROGRAMS
            _barrier(counter, met, IS_WHOLE)
            _project(
                matrix, HIDDEN, w0, w1, w2, w3, active, ones, x, x, scaled, norms + (2 * layer + 2) * HIDDEN, pid,
                ROWS, T_DOWN, C_DOWN, INTER, PROGRAMS, False, ADD,
            )  # fmt: skip

    if IS_WHOLE or PHASE == 5:
        w0, w1, w2, w3 = _four(w_head, pid, VOCAB, 0, T_HEAD, C_HEAD, HIDDEN)
        met += PROGRAMS
        _barrier(counter, met, IS_WHOLE)
        factors = _norm_factors(x, eps, ROWS, HIDDEN, HIDDEN_BLOCK)
        _project(
            w_head, VOCAB, w0, w1, w2, w3, scaled, factors, logits, x, x, x, pid,
            ROWS, T_HEAD, C_HEAD, HIDDEN, PROGRAMS, False, STORE,
        )  # fmt: skip
