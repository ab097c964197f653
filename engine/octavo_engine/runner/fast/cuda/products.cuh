// The matrix products. The warps share out the columns of a stage, and the tensor cores multiply the 8 rows of a tile
// with the rows of inputs. Their products are of 16 rows by 8 columns. Of 8 rows of inputs, rows 8 to 15 are those of
// the next stage of the round, if there is one. Of up to 4, they are the same features again, for 16 further columns of
// the matrix, and columns 4 to 7 are the same rows of inputs for those, so that two quarters of a product count.

constexpr int UNIT = SEGMENT / WARPS;  // columns of a stage for each warp
constexpr int PIECES = UNIT / 32;      // of weights, that are multiplied at once
constexpr int LOOKS = UNIT / LOOK;     // for their inputs
constexpr int TOGETHER = IS_NARROW ? 1 : 2;  // stages in one product
constexpr int CHAINS = IS_NARROW ? 2 : 1;    // sums of one product, which do not wait for each other
constexpr int MOST_AHEAD = 3;                // stages whose weights are in registers before their turn

template <int PHASE>
struct Shape {
    static constexpr int K = columns_of(PHASE), PARTS = parts_of(PHASE), TILES = span_of(PHASE), SPAN = TILES * PARTS;
    static constexpr int STEPS = steps_of(PHASE), ROUNDS = rounds_of(PHASE), PRODUCTS = ceil_div(SPAN, TOGETHER);
    static constexpr bool HOLDS_ALL = STEPS * SPAN <= 8;  // of the inputs, in registers; else the code is too long
    static constexpr int HELD = HOLDS_ALL ? STEPS : SPAN <= 2 ? 4 : SPAN <= 6 ? 2 : 1;
    static constexpr int TOTAL = HELD * SPAN, AHEAD = MOST_AHEAD < STEPS * SPAN ? MOST_AHEAD : STEPS * SPAN;
    static constexpr int AT_ONCE = AHEAD + TOGETHER;  // stages whose weights are in registers
};

// This warp's inputs of one step. Four lanes share a row; the words of lane t are columns 2t, 2t + 8, 2t + 16 and
// 2t + 24 of 32 with their neighbours. Of few rows, lanes 0 to 15 have the first two words and lanes 16 to 31 the
// others. Where they are says place_of in exchange.cuh.
template <int PHASE>
struct Inputs {
    static constexpr int K = columns_of(PHASE);
    u32 words[LOOKS][WORDS];

    static __device__ __forceinline__ int column(int step, int chunk) {
        return (step * WARPS + (threadIdx.x >> 5)) * UNIT + 32 * chunk;
    }

    static __device__ __forceinline__ int row() { return IS_NARROW ? threadIdx.x % 16 / 4 : threadIdx.x % 32 / 4; }

    static __device__ __forceinline__ const u16* from(const u16* x, int step) {
        const int lane = threadIdx.x & 31, sharer = IS_NARROW ? lane % 4 * 2 + lane / 16 : lane % 4;
        return x + column(step, 0) * ROWS + (row() * SHARERS + sharer) * (2 * WORDS);
    }

    __device__ __forceinline__ void ask(const u16* x, int step, bool is_used) {
        const u16* const from = this->from(x, step);
#pragma unroll
        for (int i = 0; i < LOOKS; i++) {
#pragma unroll
            for (int j = 0; j < WORDS; j++) words[i][j] = 0;
            if (is_used && row() < ROWS && (K % SEGMENT == 0 || column(step, 0) + LOOK * i < round_up(K, RUN)))
                look(words[i], from + LINE * i);
        }
    }

    __device__ __forceinline__ u32 word(int i) const { return words[i / WORDS][i % WORDS]; }

    __device__ __forceinline__ bool are_missing() const {
        u32 largest = 0;
#pragma unroll
        for (int i = 0; i < LOOKS * WORDS; i++) largest = max(largest, word(i));
        return largest == EMPTY;
    }

    // Until one look finds all its words, as most others do then. Looking again and again for all takes too much of the
    // way from L2. Past the last column there is nothing to wait for, and maybe no memory.
    static __device__ __forceinline__ void wait_for_first(const u16* x) {
        if (column(0, 0) >= K) return;
        u32 words[WORDS]{};
        do {
            if (row() < ROWS) look(words, from(x, 0));
        } while (is_missing(words));
        __syncwarp();
    }

    __device__ __forceinline__ void wait(const u16* x, int step) {
        const u16* const from = this->from(x, step);
        while (are_missing()) {
#pragma unroll
            for (int i = 0; i < LOOKS; i++)
                if (is_missing(words[i])) look(words[i], from + LINE * i);
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
        multiply(sums[i % CHAINS], a[i], in.word(2 * i), in.word(2 * i + 1));
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
        multiply(sums, uint4{a[i].x, b[i].x, a[i].z, b[i].z}, in.word(4 * i), in.word(4 * i + 1));
        multiply(sums, uint4{a[i].y, b[i].y, a[i].w, b[i].w}, in.word(4 * i + 2), in.word(4 * i + 3));
    }
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
    if constexpr (BY > 0) {
        uint4 before[COUNT][4];
#pragma unroll
        for (int i = 0; i < 4 * COUNT; i++) before[i / 4][i % 4] = weights[i / 4][i % 4];
#pragma unroll
        for (int i = 0; i < 4 * COUNT; i++) weights[i / 4][i % 4] = before[(i / 4 + BY) % COUNT][i % 4];
    }
}

// All stages of one round; `near_end` is called once, with the last columns of the first round. A warp takes stages
// AHEAD of those that it multiplies, the first of them before it waits for inputs, and gives one back when it has
// taken the next.
template <int PHASE, typename NearEnd>
__device__ __forceinline__ void multiply_round(
    Queue& queue, const u16* x, Inputs<PHASE> (&inputs)[Shape<PHASE>::HELD],
    float (&sums)[Shape<PHASE>::PRODUCTS][CHAINS][4], int round, NearEnd near_end
) {
    using S = Shape<PHASE>;
    constexpr int SPAN = S::SPAN, HELD = S::HELD, STEPS = S::STEPS, TOTAL = S::TOTAL, AT_ONCE = S::AT_ONCE;
    const u32 offset = offset_in_stage();
    uint4 weights[AT_ONCE][4]{};
    u32 taken = queue.take(weights[0], offset);
    const auto take = [&](int number) {
        const u32 next = queue.take(weights[number % AT_ONCE], offset);
        queue.release(taken, weights[(number - 1) % AT_ONCE]);
        taken = next;
    };
#pragma unroll
    for (int i = 1; i < S::AHEAD; i++) take(i);
    if (round == 0) {
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
            const int coming = s + S::AHEAD;
            if (is_there(coming)) take(coming);
            else if (is_there(coming - 1)) queue.release(taken, weights[(coming - 1) % AT_ONCE]);
            if (!is_there(s)) continue;
            const int stage = s % SPAN, step = begin + s / SPAN;
            if (stage == 0) inputs[s / SPAN].wait(x, step);
            if (s == 0 && begin == 0 && round == 0) spent(3 * PHASE + C_WAIT);
            if (s == 0 && begin + HELD >= STEPS && round == 0) near_end();
            if (HELD == 1 && stage == 0) now = inputs[0];
            const Inputs<PHASE>& in = HELD == 1 ? now : inputs[s / SPAN];
            if (!S::HOLDS_ALL && HELD == 1 && stage == 0) ask_next(inputs[0], x, step + 1, 0, round);
            if (IS_NARROW) {
                multiply_stage<PHASE>(sums[stage], weights[s % AT_ONCE], in, step);
            } else if (stage % 2 || stage == SPAN - 1) {
                uint4 (&before)[4] = weights[(stage % 2 ? s - 1 : s) % AT_ONCE];
                multiply_stages<PHASE>(sums[stage / TOGETHER][0], before, weights[s % AT_ONCE], in, step);
            }
            if (!S::HOLDS_ALL && HELD > 1 && stage == SPAN - 1)
                ask_next(inputs[s / SPAN], x, step + HELD, s / SPAN, round);
        }
        if (HELD < STEPS) rotate<TOTAL % AT_ONCE>(weights);
    }
}
