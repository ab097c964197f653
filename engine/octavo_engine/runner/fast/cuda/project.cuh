// The matrix products. The warps share out the columns of a stage, and the tensor cores multiply the 8 rows of a tile
// with the rows of inputs. Their products are of 16 rows by 8 columns. Of 8 rows of inputs, rows 8 to 15 are those of
// the next stage of the round, if there is one. Of up to 4, they are the same features again, for 16 further columns of
// the matrix, and columns 4 to 7 are the same rows of inputs for those, so that two quarters of a product count.

constexpr int UNIT = SEGMENT / WARPS;  // columns of a stage for each warp
constexpr int PIECES = UNIT / 32;      // of inputs, WORDS each, that a thread holds of them
constexpr bool IS_NARROW = ROWS <= 4;
constexpr int WORDS = IS_NARROW ? 2 : 4;
constexpr int TOGETHER = IS_NARROW ? 1 : 2;  // stages in one product
constexpr int CHAINS = IS_NARROW ? 2 : 1;    // sums of one product, which do not wait for each other
constexpr int SPILLED = 6;             // stages whose sums the warps show each other at a time

constexpr int MOST_AHEAD = 2;  // stages whose weights are in registers before their turn

template <int PHASE>
struct Shape {
    static constexpr int K = columns_of(PHASE), PARTS = parts_of(PHASE), TILES = span_of(PHASE), SPAN = TILES * PARTS;
    static constexpr int STEPS = steps_of(PHASE), ROUNDS = rounds_of(PHASE), PRODUCTS = ceil_div(SPAN, TOGETHER);
    static constexpr bool HOLDS_ALL = STEPS * SPAN <= 8;  // of the inputs, in registers; else the code is too long
    static constexpr int HELD = HOLDS_ALL ? STEPS : SPAN <= 2 ? 4 : SPAN <= 6 ? 2 : 1;
    static constexpr int TOTAL = HELD * SPAN, LEAD = MOST_AHEAD < STEPS * SPAN ? MOST_AHEAD : STEPS * SPAN;
    static constexpr int TAKEN = LEAD + TOGETHER;  // stages whose weights are in registers at once
};

// This warp's inputs of one step. Four lanes share a row; the words of lane t are columns 2t, 2t + 8, 2t + 16 and
// 2t + 24 of 32 with their neighbours, which exchange.cuh stores side by side. Of few rows, lanes 0 to 15 have the
// first two words and lanes 16 to 31 the others.
template <int PHASE>
struct Inputs {
    static constexpr int K = columns_of(PHASE);
    u32 words[PIECES][WORDS];

    static __device__ __forceinline__ int column(int step, int chunk) {
        return (step * WARPS + (threadIdx.x >> 5)) * UNIT + 32 * chunk;
    }

    static __device__ __forceinline__ int row() { return IS_NARROW ? threadIdx.x % 16 / 4 : threadIdx.x % 32 / 4; }

    static __device__ __forceinline__ const u16* from(const u16* x, int step) {
        const int half = IS_NARROW ? threadIdx.x % 32 / 16 * 4 : 0;
        return x + row() * round_up(K, 32) + column(step, 0) + threadIdx.x % 4 * 8 + half;
    }

    __device__ __forceinline__ void ask(const u16* x, int step, bool is_used) {
        const u16* const from = this->from(x, step);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
#pragma unroll
            for (int j = 0; j < WORDS; j++) words[i][j] = 0;
            if (is_used && row() < ROWS && (K % SEGMENT == 0 || column(step, i) < K)) look(words[i], from + 32 * i);
        }
    }

    __device__ __forceinline__ bool are_missing() const {
        u32 largest = 0;
#pragma unroll
        for (int i = 0; i < PIECES * WORDS; i++) largest = max(largest, words[i / WORDS][i % WORDS]);
        return largest == EMPTY;
    }

    // Of many rows: until one word is there, as most others are then. Looking again and again for all takes too much of
    // the way from L2. Past the last column there is nothing to wait for, and maybe no memory.
    static __device__ __forceinline__ void wait_for_first(const u16* x) {
        if (ROWS < 8 || column(0, 0) >= K) return;
        u32 words[WORDS];
        do look(words, from(x, 0));
        while (is_missing(words));
        __syncwarp();
    }

    __device__ __forceinline__ void wait(const u16* x, int step) {
        const u16* const from = this->from(x, step);
        while (are_missing()) {
#pragma unroll
            for (int i = 0; i < PIECES; i++)
                if (is_missing(words[i])) look(words[i], from + 32 * i);
        }
        __syncwarp();
    }
};

// Where in a stage this thread's address for ldmatrix is: of row lane % 8 of matrix lane / 8 of four, which are columns
// 0, 16, 8 and 24 of 32, so that the first and third stand in the upper 8 rows of a product.
__device__ __forceinline__ u32 offset_in_stage() {
    const int lane = threadIdx.x & 31, matrix = lane >> 3;
    return (lane & 7) * PITCH + 2 * ((threadIdx.x >> 5) * UNIT + (matrix >> 1) * 8 + (matrix & 1) * 16);
}

// What lies past a matrix's last column in a stage is of an earlier stage, or nothing at all: not a number, maybe.
template <int PHASE>
__device__ __forceinline__ void cut(uint4& a, int column) {
    constexpr int K = columns_of(PHASE);
    if (K % UNIT == 0) return;
    if (column >= K) a.x = 0;
    if (column + 16 >= K) a.y = 0;
    if (column + 8 >= K) a.z = 0;
    if (column + 24 >= K) a.w = 0;
}

// One stage of a tile, of few rows.
template <int PHASE>
__device__ __forceinline__ void multiply_stage(
    float (&sums)[CHAINS][4], uint4 (&a)[4], const Inputs<PHASE>& in, int step
) {
    if (columns_of(PHASE) % SEGMENT && in.column(step, 0) >= columns_of(PHASE)) return;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        cut<PHASE>(a[i], in.column(step, i));
        multiply(sums[i % CHAINS], a[i], in.words[i][0], in.words[i][1]);
    }
}

// Two stages of the same columns, of 8 rows.
template <int PHASE>
__device__ __forceinline__ void multiply_stages(
    float (&sums)[4], uint4 (&a)[4], uint4 (&b)[4], const Inputs<PHASE>& in, int step
) {
    if (columns_of(PHASE) % SEGMENT && in.column(step, 0) >= columns_of(PHASE)) return;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        cut<PHASE>(a[i], in.column(step, i));
        cut<PHASE>(b[i], in.column(step, i));
        multiply(sums, uint4{a[i].x, b[i].x, a[i].z, b[i].z}, in.words[i][0], in.words[i][1]);
        multiply(sums, uint4{a[i].y, b[i].y, a[i].w, b[i].w}, in.words[i][WORDS - 2], in.words[i][WORDS - 1]);
    }
}

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

// The inputs of a later step, or of one of the next round's first.
template <int PHASE>
__device__ __forceinline__ void ask_next(Inputs<PHASE>& in, const u16* x, int step, int wrapped, int round) {
    const bool is_of_round = step < Shape<PHASE>::STEPS;
    in.ask(x, is_of_round ? step : wrapped, is_of_round || round + 1 < Shape<PHASE>::ROUNDS);
}

template <int PHASE, int HELD>
__device__ __forceinline__ void ask_first(Inputs<PHASE> (&inputs)[HELD], const u16* x) {
#pragma unroll
    for (int i = 0; i < HELD; i++) inputs[i].ask(x, i, true);
}

// Let what lies BY places on be the first.
template <int BY, int COUNT>
__device__ __forceinline__ void rotate(uint4 (&weights)[COUNT][4]) {
    if (BY == 0) return;
    uint4 before[COUNT][4];
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) before[i / 4][i % 4] = weights[i / 4][i % 4];
#pragma unroll
    for (int i = 0; i < 4 * COUNT; i++) weights[i / 4][i % 4] = before[(i / 4 + BY) % COUNT][i % 4];
}

// All stages of one round; `near_end` is called once, with the last columns of the first round. A warp takes stages
// LEAD ahead of those that it multiplies, the first of them before it waits for inputs, and gives one back when it has
// taken the next.
template <int PHASE, typename NearEnd>
__device__ __forceinline__ void multiply_round(
    Queue& queue, const u16* x, Inputs<PHASE> (&inputs)[Shape<PHASE>::HELD],
    float (&sums)[Shape<PHASE>::PRODUCTS][CHAINS][4], int round, NearEnd near_end
) {
    using S = Shape<PHASE>;
    constexpr int SPAN = S::SPAN, HELD = S::HELD, STEPS = S::STEPS, TOTAL = S::TOTAL, TAKEN = S::TAKEN;
    const u32 offset = offset_in_stage();
    uint4 weights[TAKEN][4];
    u32 taken = queue.take(weights[0], offset);
    const auto take = [&](int number) {
        const u32 next = queue.take(weights[number % TAKEN], offset);
        queue.release(taken, weights[(number - 1) % TAKEN]);
        taken = next;
    };
#pragma unroll
    for (int i = 1; i < S::LEAD; i++) take(i);
    if (ROWS == 8 && round == 0) {
        Inputs<PHASE>::wait_for_first(x);
        ask_first(inputs, x);
    }
#pragma unroll 1
    for (int begin = 0; begin < STEPS; begin += HELD) {
        Inputs<PHASE> now;
        const auto is_there = [&](int number) {
            return number < TOTAL && STEPS % HELD == 0 || begin + number / SPAN < STEPS;
        };
#pragma unroll
        for (int s = 0; s < TOTAL; s++) {
            const int coming = s + S::LEAD;
            if (is_there(coming)) take(coming);
            else if (is_there(coming - 1)) queue.release(taken, weights[(coming - 1) % TAKEN]);
            if (!is_there(s)) continue;
            const int stage = s % SPAN, step = begin + s / SPAN;
            if (stage == 0) inputs[s / SPAN].wait(x, step);
            if (s == 0 && begin == 0 && round == 0) spent(3 * PHASE + C_WAIT);
            if (s == 0 && begin + HELD >= STEPS && round == 0) near_end();
            if (HELD == 1 && stage == 0) now = inputs[0];
            const Inputs<PHASE>& in = HELD == 1 ? now : inputs[s / SPAN];
            if (!S::HOLDS_ALL && HELD == 1 && stage == 0) ask_next(inputs[0], x, step + 1, 0, round);
            if (IS_NARROW) {
                multiply_stage<PHASE>(sums[stage], weights[s % TAKEN], in, step);
            } else if (stage % 2 || stage == SPAN - 1) {
                uint4 (&before)[4] = weights[(stage % 2 ? s - 1 : s) % TAKEN];
                multiply_stages<PHASE>(sums[stage / TOGETHER][0], before, weights[s % TAKEN], in, step);
            }
            if (!S::HOLDS_ALL && HELD > 1 && stage == SPAN - 1)
                ask_next(inputs[s / SPAN], x, step + HELD, s / SPAN, round);
        }
        if (HELD < STEPS) rotate<TOTAL % TAKEN>(weights);
    }
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
    Inputs<PHASE> inputs[S::HELD];
    if (ROWS < 8) ask_first(inputs, x);
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
