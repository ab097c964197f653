// A projection: the products of all columns (products.cuh), whose sums the warps show each other and hand out.

constexpr int SPILLED = 6;  // stages whose sums the warps show each other at a time

// Which outputs of a round are this thread's: those of one row of inputs, and of every few features.
constexpr int STRIDE_OF_FEATURES = THREADS / ROWS;

__device__ __forceinline__ int own_row() { return threadIdx.x % ROWS; }
__device__ __forceinline__ int own_feature() { return threadIdx.x / ROWS; }

// The same number of the neighbouring feature, for an even one.
__device__ __forceinline__ float of_neighbour(float value) { return __shfl_xor_sync(~0u, value, ROWS); }

// The sums of this warp, for the others to add up: (stages, warps, features, rows).
__device__ __forceinline__ void spill(float low, float high, float* reduced, int stage) {
    const int lane = threadIdx.x & 31, row = 2 * (lane & 3);
    if (row >= ROWS) return;
    float* to = reduced + (stage * WARPS + (threadIdx.x >> 5)) * 64 + (lane >> 2) * MAX_ROWS + row;
    *(float2*)to = float2{low, high};
}

// Those of some stages, of which there are COUNT in this round, from the first of `reduced` on.
template <int FIRST, int COUNT, int PRODUCTS>
__device__ __forceinline__ void spill_some(const float (&sums)[PRODUCTS][CHAINS][4], float* reduced) {
#pragma unroll
    for (int i = FIRST; i < FIRST + SPILLED && i < COUNT; i++) {
        const float (&own)[CHAINS][4] = sums[i / TOGETHER], (&other)[4] = own[CHAINS - 1];
        if (IS_NARROW) {
            const float low = __shfl_down_sync(~0u, own[0][2] + other[2], 2);
            const float high = __shfl_down_sync(~0u, own[0][3] + other[3], 2);
            spill(own[0][0] + other[0] + low, own[0][1] + other[1] + high, reduced, i - FIRST);
        } else {
            spill(own[0][i % 2 * 2], own[0][i % 2 * 2 + 1], reduced, i - FIRST);
        }
    }
}

__device__ __forceinline__ float add_up(const float* reduced) {
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) total += reduced[warp * 64];
    return total;
}

// This thread's outputs of the tiles from FIRST on whose sums are in `reduced`.
template <int PHASE, int FIRST, typename Use>
__device__ __forceinline__ void hand_out(const float* reduced, int first, int round, Use use) {
    using S = Shape<PHASE>;
    constexpr int MOST = SPILLED / S::PARTS, TILES = S::TILES - FIRST < MOST ? S::TILES - FIRST : MOST;
    constexpr int OUTPUTS = TILES * 8;
#pragma unroll
    for (int begin = 0; begin < OUTPUTS; begin += STRIDE_OF_FEATURES) {
        const int place = begin + own_feature();
        if (begin + (threadIdx.x & ~31) / ROWS >= OUTPUTS) break;
        const bool is_there = OUTPUTS * ROWS % 32 == 0 || place < OUTPUTS;
        const int tile = is_there ? place / 8 : 0;
        const float* from = reduced + tile * S::PARTS * WARPS * 64 + place % 8 * MAX_ROWS + own_row();
        const float sum = add_up(from), up = S::PARTS == 2 ? add_up(from + WARPS * 64) : 0;
        const int column = (first + (round * S::TILES + FIRST + tile) * PROGRAMS) * 8 + place % 8;
        use(is_there ? column : outputs_of(PHASE), sum, up);
    }
}

// The sums of all warps, from the tile FIRST on, and what comes of them.
template <int PHASE, int FIRST, typename Use>
__device__ __forceinline__ void reduce(
    const float (&sums)[Shape<PHASE>::PRODUCTS][CHAINS][4], float* reduced, int first, int round, Use use
) {
    using S = Shape<PHASE>;
    if (FIRST) sync_workers();  // what was in `reduced` is used
    spill_some<FIRST * S::PARTS, S::SPAN>(sums, reduced);
    sync_workers();
    hand_out<PHASE, FIRST>(reduced, first, round, use);
    constexpr int NEXT = FIRST + SPILLED / S::PARTS;
    if constexpr (NEXT < S::TILES) reduce<PHASE, NEXT>(sums, reduced, first, round, use);
}

// One phase: this block's tiles of its matrix times the rows of x. `near_end` is called once when little is left of the
// first round, `prepare` when it is multiplied, and `use(column, sum, sum of the up projection)` for this thread's
// outputs; a whole warp calls it together, with a column past the last one where there is no output.
template <int PHASE, typename NearEnd, typename Prepare, typename Use>
__device__ __forceinline__ void project(
    Queue& queue, const u16* x, int first, float* reduced, NearEnd near_end, Prepare prepare, Use use
) {
    using S = Shape<PHASE>;
    Inputs<PHASE> inputs[S::HELD]{};
#pragma unroll 1
    for (int round = 0; round < S::ROUNDS; round++) {
        float sums[S::PRODUCTS][CHAINS][4] = {};
        multiply_round<PHASE>(queue, x, inputs, sums, round, near_end);
        spent(3 * PHASE + C_MULTIPLY);
        sync_workers();  // what was in `reduced` is used
        if (!round) prepare();
        reduce<PHASE, 0>(sums, reduced, first, round, use);
        spent(3 * PHASE + C_HAND_OUT);
    }
}
