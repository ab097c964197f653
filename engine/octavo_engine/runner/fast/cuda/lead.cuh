// What a warp adds up over the tokens of a lead, for up to 8 queries. (A row's own have one or few, for which sums.cuh
// takes less time.) A unit is of whole chunks, since leads are of whole pages, so that each warp has as many tiles, and
// each of them all its tokens.
//
// Of each 32 dimensions a lane has 8 that lie side by side, since the order in which products add them up is free.

constexpr int RUNS = DIM / 32;

struct Tile {  // keys or values: of tokens lane / 4 and 8 more, dimensions 8 (lane % 4) on of each 32
    uint4 parts[2 * RUNS];

    // `offset`: of the values behind the keys, or none.
    __device__ __forceinline__ void load(const Params& p, const Place& at, int layer, int tile, u64 offset) {
        const int lane = threadIdx.x & 31;
        const u16* from = p.cache + offset + (lane / 4 * KV_HEADS * DIM + lane % 4 * 8);
        from += tile < TEAM ? at.slot_of_first + layer * p.layer_stride + tile * (TILE * KV_HEADS * DIM)
                            : at.slot(p, layer, at.begin + tile * TILE);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < RUNS; i++) parts[h * RUNS + i] = load_cached(from + h * (8 * KV_HEADS * DIM) + 32 * i);
    }

    // Of a stage's tokens from `first` on, keys or values. Returns what shows that they are there.
    __device__ __forceinline__ u32 take(u32 stage, int first) {
        const int lane = threadIdx.x & 31, token = first + lane / 4;
        u32 seen = 0;
#pragma unroll
        for (int i = 0; i < 2 * RUNS; i++) {
            parts[i] = load_shared(stage + (token + i / RUNS * 8) * DIM * 2 + (lane % 4 + i % RUNS * 4) * 16);
            seen |= parts[i].x;
        }
        return seen;
    }
};

// Query lane / 4 of a lead's unit as a factor of products.
struct LeadQueries {
    uint4 parts[RUNS];

    __device__ __forceinline__ explicit LeadQueries(const Head& head) {
        const int lane = threadIdx.x & 31;
        const u16* const from = head.lead[lane / 4] + lane % 4 * 8;
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            const uint2 low = *(const uint2*)(from + 32 * i), high = *(const uint2*)(from + 32 * i + 4);
            parts[i] = uint4{low.x, low.y, high.x, high.y};
        }
    }
};

// This warp's tiles of the next LEAD_CHUNK tokens, where they come through the queue.
__device__ __forceinline__ void take_tiles(Chunks& chunks, Tile& keys, Tile& values) {
#pragma unroll
    for (int chunk = 0; chunk < LEAD_CHUNK; chunk += CHUNK) {
        const u32 stage = chunks.take();
        const int first = warp_of_team() * TILE - chunk;
        const bool is_own = 0 <= first && first < CHUNK;
        chunks.queue.give_back(is_own ? keys.take(stage, first) | values.take(stage + CHUNK_BYTES, first) : 0);
    }
}

struct LeadSums : Columns {
    // All tiles of a unit that are this warp's, of which the first is loaded.
    __device__ __forceinline__ void add_all(
        const Params& p, const Place& at, int layer, Chunks& chunks, Tile& keys, Tile& values_of, const LeadQueries& q
    ) {
        const int num_tiles = (at.end - at.begin) / TILE;
#pragma unroll 1
        for (int tile = warp_of_team(); tile < num_tiles; tile += TEAM) {
            const bool is_last = tile + TEAM >= num_tiles;
            float scores[4] = {};
            score(scores, keys, q);
            if (!IS_QUEUED && !is_last) keys.load(p, at, layer, tile + TEAM, 0);
            u32 weights[2];
            weigh(scores, TILE, weights);
            add(values_of, weights);
            if (!IS_QUEUED && !is_last) values_of.load(p, at, layer, tile + TEAM, p.value_offset);
            if (IS_QUEUED && !is_last) take_tiles(chunks, keys, values_of);
        }
    }

    // STORED queries from `first` on, for the team to see.
    __device__ __forceinline__ void store(Head& head, int first) const {
        const int lane = threadIdx.x & 31, warp = warp_of_team();
#pragma unroll
        for (int q = 0; q < 2; q++) {
            const int stored = lane % 4 * 2 + q - first;
            if (stored < 0 || stored >= STORED) continue;
            head.highest[warp][stored] = highest[q];
            head.weight[warp][stored] = weight[q];
#pragma unroll
            for (int i = 0; i < 4 * RUNS; i++) head.sums[warp][stored][dimension(i)] = values[i / 2][i % 2 * 2 + q];
        }
    }

  private:
    // Of 4 in each run, those of this lane.
    static __device__ __forceinline__ int dimension(int i) {
        const int row = (threadIdx.x & 31) / 4;
        return i / 4 * 32 + row / 2 * 8 + i % 4 * 2 + row % 2;
    }

    static __device__ __forceinline__ void score(float (&scores)[4], const Tile& keys, const LeadQueries& q) {
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            const uint4 &low = keys.parts[i], &high = keys.parts[RUNS + i];
            multiply(scores, uint4{low.x, high.x, low.y, high.y}, q.parts[i].x, q.parts[i].y);
            multiply(scores, uint4{low.z, high.z, low.w, high.w}, q.parts[i].z, q.parts[i].w);
        }
    }

    __device__ __forceinline__ void add(const Tile& of, const u32 (&weights)[2]) {
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            const uint4 &low = of.parts[i], &high = of.parts[RUNS + i];
            const uint4 first = {turn_matrix(low.x), turn_matrix(low.y), turn_matrix(high.x), turn_matrix(high.y)};
            const uint4 second = {turn_matrix(low.z), turn_matrix(low.w), turn_matrix(high.z), turn_matrix(high.w)};
            multiply(values[2 * i], first, weights[0], weights[1]);
            multiply(values[2 * i + 1], second, weights[0], weights[1]);
        }
    }
};
