// What a warp adds up over cached tokens: groups of lanes take tokens in turn, each lane 8 of their dimensions.

template <int COUNT>
struct Loaded {  // keys and values of COUNT tokens of this lane's
    static constexpr int TAKEN = COUNT * STRIDE;  // by the team at once
    uint4 keys[COUNT], values[COUNT];

    // Of this thread's first token in a chunk; the others are STRIDE apart.
    static __device__ __forceinline__ int token() { return threadIdx.x % TEAM_THREADS / LANES; }

    __device__ __forceinline__ void load(const Params& p, const Place& at, int layer, int chunk) {
        const int begin = at.begin + chunk * TAKEN, left = at.end - begin - token();
        const u16* from = p.cache + threadIdx.x % LANES * 8 + token() * KV_HEADS * DIM;
        from += chunk ? at.slot(p, layer, begin) : at.slot_of_first + layer * p.layer_stride;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const bool is_there = i * STRIDE < left;
            keys[i] = is_there ? load_cached(from + i * STRIDE * KV_HEADS * DIM) : uint4{0, 0, 0, 0};
            values[i] = is_there ? load_cached(from + p.value_offset + i * STRIDE * KV_HEADS * DIM) : uint4{0, 0, 0, 0};
        }
    }

    // What lies past the last of `left` tokens may be no numbers.
    __device__ __forceinline__ void take(Chunks& chunks, int left) {
        const u32 from = chunks.take() + token() * DIM * 2 + threadIdx.x % LANES * 16;
        u32 seen = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            keys[i] = load_shared(from + i * STRIDE * DIM * 2);
            values[i] = load_shared(from + i * STRIDE * DIM * 2 + CHUNK_BYTES);
            seen |= keys[i].x | values[i].x;
            if (i * STRIDE + token() >= left) values[i] = uint4{0, 0, 0, 0};
        }
        chunks.queue.give_back(seen);
    }
};

template <int HELD>
struct Sums {  // of some queries over some tokens: weighted values (8 dimensions), weights and highest scores
    float values[HELD][8], weight[HELD], highest[HELD];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            weight[h] = 0;
            highest[h] = NEVER;
#pragma unroll
            for (int d = 0; d < 8; d++) values[h][d] = 0;
        }
    }

    // `left`: how many tokens of the split there are from this chunk on.
    template <int COUNT>
    __device__ __forceinline__ void add(const Loaded<COUNT>& in, int left, const float (&q)[HELD][8]) {
        float scores[HELD][COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float key[8];
            unpack(in.keys[i], key);
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                float sum = 0;
#pragma unroll
                for (int d = 0; d < 8; d++) sum += q[h][d] * key[d];
#pragma unroll
                for (int offset = LANES / 2; offset; offset >>= 1) sum += __shfl_xor_sync(~0u, sum, offset);
                scores[h][i] = i * STRIDE + in.token() < left ? sum : NEVER;
            }
        }
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            float raised = highest[h];
#pragma unroll
            for (int i = 0; i < COUNT; i++) raised = fmaxf(raised, scores[h][i]);
            shrink(h, raised);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                scores[h][i] = scores[h][i] == NEVER ? 0 : exp2_fast(scores[h][i] - raised);
                weight[h] += scores[h][i];
            }
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float value[8];
            unpack(in.values[i], value);
#pragma unroll
            for (int h = 0; h < HELD; h++)
#pragma unroll
                for (int d = 0; d < 8; d++) values[h][d] += scores[h][i] * value[d];
        }
    }

    // All tokens of a unit, of which the first are loaded. `near_end` is called once when a few are left, if they come
    // through the queue.
    template <int COUNT, typename NearEnd>
    __device__ __forceinline__ void add_all(
        const Params& p, const Place& at, int layer, Chunks& chunks, Loaded<COUNT>& loaded, const float (&q)[HELD][8],
        NearEnd near_end
    ) {
        constexpr int TAKEN = Loaded<COUNT>::TAKEN;
        int left = at.end - at.begin;
        const int few = min(left, 4 * TAKEN);
#pragma unroll 1
        for (int chunk = 1; left > 0; chunk++, left -= TAKEN) {
            const Loaded<COUNT> these = loaded;
            if (!IS_QUEUED && left > TAKEN) loaded.load(p, at, layer, chunk);
            if (IS_QUEUED && few - TAKEN < left && left <= few) near_end();
            add(these, left, q);
            if (IS_QUEUED && left > TAKEN) loaded.take(chunks, left - TAKEN);
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
            for (int h = 0; h < HELD; h++) {
                shrink(h, fmaxf(highest[h], __shfl_xor_sync(~0u, highest[h], offset)));
                weight[h] += __shfl_xor_sync(~0u, weight[h], offset);
#pragma unroll
                for (int d = 0; d < 8; d++) values[h][d] += __shfl_xor_sync(~0u, values[h][d], offset);
            }
    }

    // Those of the queries from FIRST on that fit, for the team to see.
    template <int FIRST>
    __device__ __forceinline__ void store(Head& head) const {
        const int lane = threadIdx.x & 31, warp = warp_of_team();
        if (lane >= LANES) return;
#pragma unroll
        for (int h = FIRST; h < HELD && h < FIRST + STORED; h++) {
            head.highest[warp][h - FIRST] = highest[h];
            head.weight[warp][h - FIRST] = weight[h];
#pragma unroll
            for (int d = 0; d < 8; d++) head.sums[warp][h - FIRST][lane * 8 + d] = values[h][d];
        }
    }
};

// Queries from `first` on, as `Sums` wants them; past `last` the last one again. They are read one by one: numbers that
// are read together stay neighbours in registers, for which the compiler puts aside keys that are still under way.
template <int HELD>
__device__ __forceinline__ void take_queries(float (&q)[HELD][8], const Head& head, int first, int last) {
#pragma unroll
    for (int h = 0; h < HELD; h++)
#pragma unroll
        for (int d = 0; d < 8; d++) q[h][d] = load_alone(&head.q[min(first + h, last)][threadIdx.x % LANES * 8 + d]);
}
