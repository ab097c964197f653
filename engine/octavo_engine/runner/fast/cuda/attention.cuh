// Attention of one new token a row over the paged cache. A unit of work is one split (a run of cached tokens) of one
// KV head of one row; its warps take tokens in turn, each group of lanes one token, each lane 8 of its dimensions.
// Splits are merged by the block that comes last. The last split also takes the new token, whose key and value it
// writes to the cache.

struct Loaded {
    uint4 keys[BATCH], values[BATCH];

    __device__ __forceinline__ int token(int batch, int i) const {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        return ((batch * BATCH + i) * WARPS + warp) * TOKENS + lane / LANES;
    }

    __device__ __forceinline__ void load(const Params& p, const Place& at, int layer, int batch) {
        const int d = threadIdx.x % LANES * 8;
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const int t = at.begin + token(batch, i);
            const bool is_there = t < at.end;
            const u16* from = p.cache + (is_there ? at.slot(p, layer, t) : 0) + d;
            keys[i] = is_there ? load_cached(from) : uint4{0, 0, 0, 0};
            values[i] = is_there ? load_cached(from + p.value_offset) : uint4{0, 0, 0, 0};
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

    __device__ __forceinline__ void add(const Loaded& in, const Place& at, int batch, const Head& head, int first) {
        const int d0 = threadIdx.x % LANES * 8;
        float scores[HELD_HEADS][BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            float key[8];
            unpack(in.keys[i], key);
            const bool is_there = at.begin + in.token(batch, i) < at.end;
#pragma unroll
            for (int h = 0; h < HELD_HEADS; h++) {
                float sum = 0;
                const float* q = head.q[min(first + h, GROUP - 1)] + d0;
#pragma unroll
                for (int d = 0; d < 8; d++) sum += q[d] * key[d];
#pragma unroll
                for (int offset = LANES / 2; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
                scores[h][i] = is_there ? sum : NEVER;
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

// Merge the warps of a block, and the new token; the result goes out, or to `partial` for the merge of the splits.
__device__ __forceinline__ void merge_warps(
    const Params& p, const Place& at, const Head& head, const float* sums, int first, float* partial
) {
    const bool is_last = at.split == at.num_splits - 1;
    for (int i = threadIdx.x; i < HELD_HEADS * DIM; i += THREADS) {
        const int held = i / DIM, h = first + held, d = i % DIM;
        if (h >= GROUP) continue;
        float highest = is_last ? head.own[h] : NEVER, weight = 0, value = 0;
#pragma unroll 8
        for (int w = 0; w < WARPS; w++) highest = fmaxf(highest, head.highest[w][held]);
        if (is_last) {
            weight = exp2_fast(head.own[h] - highest);
            value = weight * head.value[d];
        }
#pragma unroll 4
        for (int w = 0; w < WARPS; w++) {
            const float factor = exp2_fast(head.highest[w][held] - highest);
            weight += factor * head.weight[w][held];
            value += factor * sums[(w * HELD_HEADS + held) * DIM + d];
        }
        if (at.num_splits == 1) {
            p.attended[at.row * WIDTH + (at.kv_head * GROUP + h) * DIM + d] = from_float(value / weight);
        } else {
            float* to = partial + h * (DIM + 2);
            to[d] = value;
            if (d == 0) to[DIM] = highest;
            if (d == 1) to[DIM + 1] = weight;
        }
    }
}

__device__ __forceinline__ void merge_splits(const Params& p, const Place& at, const float* partial) {
    for (int i = threadIdx.x; i < GROUP * DIM; i += THREADS) {
        const int h = i / DIM, d = i % DIM;
        float highest = NEVER, weight = 0, value = 0;
#pragma unroll 1
        for (int begin = 0; begin < at.num_splits; begin += 4) {
            float values[4], tops[4], weights[4], raised = highest;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* from = partial + ((begin + i) * GROUP + h) * (DIM + 2);
                const bool is_there = begin + i < at.num_splits;
                tops[i] = is_there ? load_shared(from + DIM) : NEVER;
                weights[i] = is_there ? load_shared(from + DIM + 1) : 0;
                values[i] = is_there ? load_shared(from + d) : 0;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) raised = fmaxf(raised, tops[i]);
            const float shrink = exp2_fast(highest - raised);
            highest = raised;
            weight *= shrink;
            value *= shrink;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float factor = exp2_fast(tops[i] - highest);
                weight += factor * weights[i];
                value += factor * values[i];
            }
        }
        p.attended[at.row * WIDTH + (at.kv_head * GROUP + h) * DIM + d] = from_float(value / weight);
    }
}

__device__ __forceinline__ void attend(
    const Params& p, const Place& at, int layer, const Turn& turn, Loaded& loaded, Head& head, float* sums, int* ticket
) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const bool is_last = at.split == at.num_splits - 1;
    float* item = p.partial + (u64)(at.row * KV_HEADS + at.kv_head) * MAX_SPLITS * GROUP * (DIM + 2);
    prepare_heads(p, at, layer, turn, head);
    sync_workers();
    if (is_last)
        for (int h = warp; h < GROUP; h += WARPS) {
            float sum = 0;
            for (int d = lane; d < DIM; d += 32) sum += head.q[h][d] * head.key[d];
            sum = warp_sum(sum);
            if (lane == 0) head.own[h] = sum;
        }
    const int num_batches = ceil_div(at.end - at.begin, BATCH * WARPS * TOKENS);
    for (int first = 0; first < GROUP; first += HELD_HEADS) {
        Sums own;
        own.clear();
        for (int batch = 0; batch < num_batches; batch++) {
            if (batch || first) loaded.load(p, at, layer, batch);
            own.add(loaded, at, batch, head, first);
        }
        own.merge_lanes();
        if (first) sync_workers();  // the sums of the heads before are used
        own.store(head, sums);
        sync_workers();
        merge_warps(p, at, head, sums, first, item + at.split * GROUP * (DIM + 2));
    }
    if (at.num_splits == 1) return;
    sync_workers();
    if (threadIdx.x == 0) {
        __threadfence();
        head.ticket = atomicAdd(ticket, 1);
        __threadfence();
    }
    sync_workers();
    if (head.ticket == at.num_splits - 1) merge_splits(p, at, item);
}

// All units of this block; cached keys and values of the first are under way before the barrier.
__device__ __forceinline__ void attention(
    const Params& p, int layer, int rows, int& met, Head& head, float* sums
) {
    const int num_items = rows * KV_HEADS;
    const int share = max(1, min(MAX_SPLITS, PROGRAMS / num_items));
    bool has_met = false;
    for (int unit = blockIdx.x; unit < num_items * share; unit += PROGRAMS) {
        const Place at(p, unit, num_items, share);
        if (at.split >= at.num_splits) continue;
        Loaded loaded;
        loaded.load(p, at, layer, 0);
        const Turn turn(p, layer, at.position);
        if (!has_met) meet(p.marks, met);
        else sync_workers();  // the unit before is done with shared memory
        has_met = true;
        attend(p, at, layer, turn, loaded, head, sums, p.marks + 1 + layer * num_items + unit % num_items);
    }
    if (!has_met) meet(p.marks, met);
}
