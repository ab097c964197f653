"""The attention of the persistent decode kernel: one split of one KV head a program, merged by the last."""

import triton
import triton.language as tl


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
def pages_of(table, token, end, page_stride, kv_head, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr):
    """Where the keys of tokens lie, (tokens, DIM) offsets, and which of the tokens are there."""
    is_there = token < end
    block = tl.load(table + token // PAGE, mask=is_there, other=0).to(tl.int64)
    place = block * page_stride + ((token % PAGE) * KV_HEADS + kv_head) * DIM
    return place[:, None] + tl.arange(0, DIM)[None, :], is_there[:, None]


@triton.jit
def attend_split(
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
            place, mask = pages_of(table, token, end, page_stride, kv_head, KV_HEADS, DIM, PAGE)
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
def merge_splits(
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
