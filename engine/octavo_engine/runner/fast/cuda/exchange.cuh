// How blocks hand each other numbers: there is no barrier, the numbers themselves say that they are there.
//
// A float comes with a tag of step and layer, 8 bytes at once; its reader waits for the tag. A vector of bfloat16, the
// input of a matrix product, has a place for each layer, which holds EMPTY until it is written; its reader waits until
// no word is EMPTY, which no sum is (a sum that is not a number is 0x7fff). There are two sets of these places. A step
// uses one and empties the other, so that a place is emptied a whole launch before it is filled.
//
// Every block that waits in a phase writes something that the next phases wait for, so of those none overtakes another
// by more than a phase, and a tagged place may be written anew in the next layer. A block without work in a phase
// passes it and writes nothing.

constexpr u32 EMPTY = ~0u;

constexpr int round_up(int count, int unit) { return ceil_div(count, unit) * unit; }

// A look of a warp is of one line, the same columns of all rows: all blocks ask for it, and the fewer requests, the
// sooner the last has it. (As halves of lines they cost one row 30 of 540 us, as eight halves eight rows 200 of 4,068.)
constexpr bool IS_NARROW = ROWS <= 4;
constexpr int LINE = 64, LOOK = LINE / ROWS;    // numbers, 128 bytes; columns
constexpr int SHARERS = IS_NARROW ? 8 : 4;      // threads that share a row, see Inputs
constexpr int WORDS = LOOK / (2 * SHARERS);     // that a look brings each
constexpr int RUN = 8 * SHARERS;                // columns of which each has eight

constexpr int PADDED_HIDDEN = round_up(HIDDEN, RUN), PADDED_INTER = round_up(INTER, RUN);
constexpr int PADDED_WIDTH = round_up(WIDTH, RUN);
constexpr int LAYER_SIZE = 2 * PADDED_HIDDEN + PADDED_WIDTH + PADDED_INTER;  // of a row, in the order of Vector
constexpr int SET_SIZE = ROWS * (LAYERS * LAYER_SIZE + PADDED_HIDDEN);
static_assert((u64)ROWS * (LAYERS + 1) * LAYER_SIZE < 1u << 31, "places are ints");

enum Vector { V_STREAM, V_ATTENDED, V_MIDDLE, V_ACTIVE };  // V_STREAM of layer LAYERS is the input of the head

constexpr int padded_of(int vector) {
    return vector == V_ATTENDED ? PADDED_WIDTH : vector == V_ACTIVE ? PADDED_INTER : PADDED_HIDDEN;
}
constexpr int begin_of(int vector) {
    return vector == V_STREAM ? 0 : begin_of(vector - 1) + ROWS * padded_of(vector - 1);
}

// Of a column of a row. Its thread is that of one of four pairs in eight columns, and of few rows that of one half of
// 32; the other bits tell which of the thread's numbers it is.
__device__ __forceinline__ int place_of(int row, u32 column) {
    const u32 pair = column % 8 / 2, half = column % 32 / 16, sharer = IS_NARROW ? 2 * pair + half : pair;
    const u32 number = column % 2 + column % 16 / 8 * 2 + (IS_NARROW ? column % 64 / 32 : half) * 4;
    const u32 look = column / RUN * (RUN / LOOK) + number / (2 * WORDS);
    return ((look * ROWS + row) * SHARERS + sharer) * (2 * WORDS) + number % (2 * WORDS);
}

struct Vectors {
    u16 *now, *next;  // the sets of this step and of the next

    __device__ __forceinline__ Vectors(const Params& p, u32 epoch)
        : now(p.vectors + (epoch & 1 ? SET_SIZE : 0)), next(p.vectors + (epoch & 1 ? 0 : SET_SIZE)) {}

    // A vector, (looks, ROWS, SHARERS, 2 WORDS).
    template <int VECTOR>
    __device__ __forceinline__ const u16* at(int layer) const {
        return now + layer * (LAYER_SIZE * ROWS) + begin_of(VECTOR);
    }

    // Where `put` wants a column.
    template <int VECTOR>
    static __device__ __forceinline__ int place(int layer, int row, int column) {
        return layer * (LAYER_SIZE * ROWS) + begin_of(VECTOR) + place_of(row, column);
    }

    // Two neighbouring columns, of which the first is even.
    __device__ __forceinline__ void put(int place, u32 pair) const {
        store(now + place, pair);
        store(next + place, EMPTY);
    }
};

template <int COUNT>
__device__ __forceinline__ bool is_missing(const u32 (&v)[COUNT]) {
    u32 largest = v[0];
#pragma unroll
    for (int i = 1; i < COUNT; i++) largest = max(largest, v[i]);
    return largest == EMPTY;
}

__device__ __forceinline__ void put_tagged(u64* to, float value, u32 tag) {
    store(to, (u64)tag << 32 | __float_as_uint(value));
}

// Some tagged numbers, asked for together.
template <int COUNT>
struct Tagged {
    u64 values[COUNT];

    __device__ __forceinline__ bool is_missing(int i, u32 tag) const { return (u32)(values[i] >> 32) != tag; }

    __device__ __forceinline__ float value(int i) const { return __uint_as_float((u32)values[i]); }

    __device__ __forceinline__ void ask(int i, const u64* from) { values[i] = look(from); }

    // `from(i)` is where number i is.
    template <typename From>
    __device__ __forceinline__ void wait(u32 tag, From from) {
        bool are_missing;
        do {
            are_missing = false;
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                if (!is_missing(i, tag)) continue;
                ask(i, from(i));
                are_missing = true;
            }
        } while (are_missing);
    }
};
