"""The matrix products of the persistent decode kernel: tiles of weights streamed past a few rows of inputs."""

import triton
import triton.language as tl

STORE = tl.constexpr(0)
ADD = tl.constexpr(1)


@triton.jit
def norm_factors(x, eps, ROWS: tl.constexpr, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
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
def four_pieces(matrix, tile, num_rows, k, T: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
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
def project(
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
        n0, n1, n2, n3 = four_pieces(matrix, following, num_rows, (i + 1) % GROUPS * 4 * C, T, C, K)
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
def project_gated(
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
        n0, n1, n2, n3 = four_pieces(matrix, following, num_rows, following_k, T, C, K)
        m0, m1, m2, m3 = four_pieces(upper, following, num_rows, following_k, T, C, K)
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
