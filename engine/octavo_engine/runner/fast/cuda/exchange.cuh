// How blocks hand each other numbers: there is no barrier, the numbers themselves say that they are there.
//
// A float comes with a tag of step and layer, 8 bytes at once; its reader waits for the tag. A vector of bfloat16, the
// input of a matrix product, has a place for each layer, which holds EMPTY until it is written; its reader waits until
// no word is EMPTY, which no sum is (a sum that is not a number is 0x7fff). There are two sets of these places. A step
// uses one and empties the other, so that a place is emptied a whole launch before it is filled. A set holds COPIES of
// each vector, for as many parts of the blocks to read.
//
// Every block that waits in a phase writes something that the next phases wait for, so of those none overtakes another
// by more than a phase, and a tagged place may be written anew in the next layer. A block without work in a phase
// passes it and writes nothing.

constexpr u32 EMPTY = ~0u;

constexpr int round_up(int count, int unit) { return ceil_div(count, unit) * unit; }

constexpr int PADDED_HIDDEN = round_up(HIDDEN, 32), PADDED_INTER = round_up(INTER, 32);
constexpr int LAYER_SIZE = 2 * PADDED_HIDDEN + WIDTH + PADDED_INTER;  // of a row, in the order of Vector
constexpr int COPY_SIZE = ROWS * (LAYERS * LAYER_SIZE + PADDED_HIDDEN), SET_SIZE = COPIES * COPY_SIZE;
static_assert((u64)ROWS * COPIES * (LAYERS + 1) * LAYER_SIZE < 1u << 31, "places are ints");

enum Vector { V_STREAM, V_ATTENDED, V_MIDDLE, V_ACTIVE };  // V_STREAM of layer LAYERS is the input of the head

constexpr int padded_of(int vector) {
    return vector == V_ATTENDED ? WIDTH : vector == V_ACTIVE ? PADDED_INTER : PADDED_HIDDEN;
}
constexpr int begin_of(int vector) {
    return vector == V_STREAM ? 0 : begin_of(vector - 1) + ROWS * padded_of(vector - 1);
}

// 32 columns of all rows lie side by side, and within them those that one thread of a product wants: see Inputs.
__device__ __forceinline__ int place_of(int row, int column) {
    return (column & ~31) * ROWS + row * 32 + ((column & 6) << 2 | (column & 24) >> 2 | column & 1);
}

struct Vectors {
    u16 *now, *next;  // the sets of this step and of the next

    __device__ __forceinline__ Vectors(const Params& p, u32 epoch)
        : now(p.vectors + (epoch & 1 ? SET_SIZE : 0)), next(p.vectors + (epoch & 1 ? 0 : SET_SIZE)) {}

    // Where this block reads a vector, (ROWS, padded columns).
    template <int VECTOR>
    __device__ __forceinline__ const u16* at(int layer) const {
        return now + blockIdx.x % COPIES * COPY_SIZE + layer * (LAYER_SIZE * ROWS) + begin_of(VECTOR);
    }

    // Where `put` wants a column.
    template <int VECTOR>
    static __device__ __forceinline__ int place(int layer, int row, int column) {
        return layer * (LAYER_SIZE * ROWS) + begin_of(VECTOR) + place_of(row, column);
    }

    // Two neighbouring columns, of which the first is even.
    __device__ __forceinline__ void put(int place, u32 pair) const {
#pragma unroll
        for (int copy = 0; copy < COPIES; copy++) store(now + copy * COPY_SIZE + place, pair);
#pragma unroll
        for (int copy = 0; copy < COPIES; copy++) store(next + copy * COPY_SIZE + place, EMPTY);
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
