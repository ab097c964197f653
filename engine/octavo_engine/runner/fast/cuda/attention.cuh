// Attention of one new token a row over the paged cache. A unit of work is one split (a run of cached tokens) of one
// KV head of one row; its warps take tokens in turn, each group of lanes one token, each lane 8 of its dimensions.
// The last split also takes the new token, whose key and value it writes to the cache, and merges the others.

struct Loaded {
    uint4 keys[BATCH], values[BATCH];

    // Of this thread's first token in a chunk; the others are STRIDE apart.
    static __device__ __forceinline__ int token() { return threadIdx.x / LANES; }

    __device__ __forceinline__ void load(const Params& p, const Place& at, int layer, int chunk) {
        const int begin = at.begin + chunk * CHUNK, left = at.end - begin - token();
        const u16* from = p.cache + threadIdx.x % LANES * 8 + token() * KV_HEADS * DIM;
        from += chunk ? at.slot(p, layer, begin) : at.slot_of_first + layer * p.layer_stride;
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const bool is_there = i * STRIDE < left;
            keys[i] = is_there ? load_cached(from + i * STRIDE * KV_HEADS * DIM) : uint4{0, 0, 0, 0};
            values[i] = is_there ? load_cached(from + p.value_offset + i * STRIDE * KV_HEADS * DIM) : uint4{0, 0, 0, 0};
        }
    }
};

struct Sums {  // of HELD_HEADS heads over some tokens: weighted values (8 dimensions), weights and highest scores
    float values[HELD_HEADS][8], weight[HELD_HEADS], highest[HELD_HEADS];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int h = 0; h < HELD_HEADS; h++) {
            weight[h] = 0;
            highest[h] = NEVER;
#pragma unroll
            for (int d = 0; d < 8; d++) values[h][d] = 0;
        }
    }

    // `left`: how many tokens of the split there are from this chunk on.
    __device__ __forceinline__ void add(const Loaded& in, int left, const float (&q)[HELD_HEADS][8]) {
        float scores[HELD_HEADS][BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            float key[8];
            unpack(in.keys[i], key);
#pragma unroll
            for (int h = 0; h < HELD_HEADS; h++) {
                float sum = 0;
#pragma unroll
                for (int d = 0; d < 8; d++) sum += q[h][d] * key[d];
#pragma unroll
                for (int offset = LANES / 2; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
                scores[h][i] = i * STRIDE + Loaded::token() < left ? sum : NEVER;
            }
        }
#pragma unroll
        for (int h = 0; h < HELD_HEADS; h++) {
            float raised = highest[h];
#pragma unroll
            for (int i = 0; i < BATCH; i++) raised = fmaxf(raised, scores[h][i]);
            shrink(h, raised);
#pragma unroll
            for (int i = 0; i < BATCH; i++) {
                scores[h][i] = scores[h][i] == NEVER ? 0 : exp2_fast(scores[h][i] - raised);
                weight[h] += scores[h][i];
            }
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            float value[8];
            unpack(in.values[i], value);
#pragma unroll
            for (int h = 0; h < HELD_HEADS; h++)
#pragma unroll
                for (int d = 0; d < 8; d++) values[h][d] += scores[h][i] * value[d];
        }
    }

    __device__ __forceinline__ void shrink(int h, float raised) {
        const float factor = exp2_fast(highest[h] - raised);
        highest[h] = raised;
        weight[h] *= factor;
#pragma unroll
        for (int d = 0; d < 8; d++) values[h][d] *= factor;
    }

    // Make every group of lanes hold the sums of the whole warp.
    __device__ __forceinline__ void merge_lanes() {
#pragma unroll
        for (int offset = LANES; offset < 32; offset <<= 1)
#pragma unroll
            for (int h = 0; h < HELD_HEADS; h++) {
                shrink(h, fmaxf(highest[h], __shfl_xor_sync(~0u, highest[h], offset)));
                weight[h] += __shfl_xor_sync(~0u, weight[h], offset);
#pragma unroll
                for (int d = 0; d < 8; d++) values[h][d] += __shfl_xor_sync(~0u, values[h][d], offset);
            }
    }

    __device__ __forceinline__ void store(Head& head, float* sums) const {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        if (lane >= LANES) return;
#pragma unroll
        for (int h = 0; h < HELD_HEADS; h++) {
            head.highest[warp][h] = highest[h];
            head.weight[warp][h] = weight[h];
#pragma unroll
            for (int d = 0; d < 8; d++) sums[(warp * HELD_HEADS + h) * DIM + lane * 8 + d] = values[h][d];
        }
    }
};

struct Merged {  // what some tokens give for one dimension of a head
    float highest, weight, value;
};

// Of the warps of this block, and of the new token.
__device__ __forceinline__ Merged merge_warps(
    const Place& at, const Head& head, const float* sums, int held, int h, int d
) {
    float highest = at.is_last() ? head.own[h] : NEVER;
#pragma unroll
    for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, head.highest[w][held]);
    Merged all{highest, 0, 0};
    if (at.is_last()) {
        all.weight = exp2_fast(head.own[h] - highest);
        all.value = all.weight * head.value[d];
    }
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const float factor = exp2_fast(head.highest[w][held] - highest);
        all.weight += factor * head.weight[w][held];
        all.value += factor * sums[(w * HELD_HEADS + held) * DIM + d];
    }
    return all;
}

// And of the other splits, for 32 dimensions a warp; `partial` is of this head in split 0. A tagged number for each
// dimension, then the highest score and the weight, which the lanes look up for a split each. Where there are fewer
// splits than loads, the last one is looked up again and counts nothing.
__device__ __forceinline__ Merged merge_splits(const Merged& own, const u64* partial, int num_others, int d, u32 tag) {
    constexpr int AT_ONCE = SHARE > 8 ? 8 : SHARE > 1 ? SHARE - 1 : 1;
    const int lane = threadIdx.x & 31;
    const u64* const of_lane = partial + min(lane, num_others - 1) * Place::PARTIAL_STRIDE + DIM;
    Tagged<2> scores;
    scores.ask(0, of_lane);
    scores.ask(1, of_lane + 1);
    Merged all = own;
    float factor = 0;
#pragma unroll 1
    for (int begin = 0; begin < num_others; begin += AT_ONCE) {
        Tagged<AT_ONCE> values;
        const auto of_split = [&](int i) {
            return partial + min(begin + i, num_others - 1) * Place::PARTIAL_STRIDE + d;
        };
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) values.ask(i, of_split(i));
        if (begin == 0) {
            scores.wait(tag, [&](int i) { return of_lane + i; });
            __syncwarp();
            all.highest = fmaxf(own.highest, warp_max(scores.value(0)));
            factor = lane < num_others ? exp2_fast(scores.value(0) - all.highest) : 0;
            const float shrink = exp2_fast(own.highest - all.highest);
            all.weight = own.weight * shrink + warp_sum(factor * scores.value(1));
            all.value = own.value * shrink;
        }
        values.wait(tag, of_split);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) all.value += __shfl_sync(~0u, factor, begin + i) * values.value(i);
    }
    return all;
}

// The result of the held heads goes out, or to the block of the last split.
__device__ __forceinline__ void finish(
    const Params& p, const Place& at, const Vectors& vectors, int layer, u32 tag, const Head& head, const float* sums,
    int first
) {
    for (int i = threadIdx.x; i < HELD_HEADS * DIM; i += THREADS) {
        const int held = i / DIM, h = first + held, d = i % DIM;
        if (h >= GROUP) continue;
        const Merged own = merge_warps(at, head, sums, held, h, d);
        u64* const partial = at.partial(p, h);
        if (!at.is_last()) {
            u64* const to = partial + at.split * Place::PARTIAL_STRIDE;
            if (d < 2) put_tagged(to + DIM + d, d ? own.weight : own.highest, tag);
            put_tagged(to + d, own.value, tag);
            continue;
        }
        const bool is_alone = SHARE == 1 || at.num_splits == 1;
        const Merged all = is_alone ? own : merge_splits(own, partial, at.num_splits - 1, d, tag);
        const float value = __fdividef(all.value, all.weight), next = __shfl_down_sync(~0u, value, 1);
        if (d % 2 == 0)
            vectors.put(Vectors::place<V_ATTENDED>(layer, at.row, (at.kv_head * GROUP + h) * DIM + d),
                        from_floats(value, next));
    }
}

__device__ __forceinline__ void attend(
    const Params& p, const Place& at, const Vectors& vectors, int layer, u32 tag, Turn& turn, Loaded& loaded,
    Head& head, float* sums
) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    prepare_heads(p, at, layer, tag, turn, head);
    sync_workers();
    if (at.is_last())
        for (int h = warp; h < GROUP; h += WARPS) {
            float sum = 0;
            for (int d = lane; d < DIM; d += 32) sum += head.q[h][d] * head.key[d];
            sum = warp_sum(sum);
            if (lane == 0) head.own[h] = sum;
        }
    const int left = at.end - at.begin;
    for (int first = 0; first < GROUP; first += HELD_HEADS) {
        float q[HELD_HEADS][8];
#pragma unroll
        for (int h = 0; h < HELD_HEADS; h++)
#pragma unroll
            for (int d = 0; d < 8; d++) q[h][d] = head.q[min(first + h, GROUP - 1)][threadIdx.x % LANES * 8 + d];
        Sums own;
        own.clear();
        if (first) loaded.load(p, at, layer, 0);
#pragma unroll 1
        for (int done = 0; done < left; done += CHUNK) {
            const Loaded these = loaded;
            if (done + CHUNK < left) loaded.load(p, at, layer, done / CHUNK + 1);
            own.add(these, left - done, q);
        }
        own.merge_lanes();
        if (first) sync_workers();  // the sums of the heads before are used
        own.store(head, sums);
        sync_workers();
        finish(p, at, vectors, layer, tag, head, sums, first);
    }
}

// All units of this block; cached keys and values of the first are under way before the projection is there.
__device__ __forceinline__ void attention(
    const Params& p, const Vectors& vectors, int layer, u32 tag, const Place& first, Head& head, float* sums
) {
    sync_workers();  // what was in shared memory is used
    for (int unit = blockIdx.x; unit < ITEMS * SHARE; unit += PROGRAMS) {
        Place at = first;
        if (unit != blockIdx.x) at.find(p, unit);
        if (at.split >= at.num_splits) continue;
        Loaded loaded;
        loaded.load(p, at, layer, 0);
        Turn turn(p, layer, at.position);
        if (unit != blockIdx.x) sync_workers();
        attend(p, at, vectors, layer, tag, turn, loaded, head, sums);
    }
}
