// What all parts of the decode step share: constants of the model and small helpers.
//
// The compiler is given ROWS (1, 2, 4 or 8), PROGRAMS (thread blocks, one for each multiprocessor), DEPTH (stages of the
// queue of weights), SUMS_BYTES (of shared memory behind it), STATIC_BYTES (most of the rest), BOX (tokens that one copy
// brings from the cache), HIDDEN, INTER, VOCAB, LAYERS, HEADS, KV_HEADS, DIM, PAGE, HAS_HEAD_NORM, HAS_BIAS and PROFILE.
// Weights are bfloat16.

constexpr int WARPS = 8, THREADS = 32 * WARPS;  // that work
constexpr int FEEDERS = 4;  // more warps, of which the first brings weights, and cached keys and values
constexpr int MAX_ROWS = 8;
constexpr int QKV = (HEADS + 2 * KV_HEADS) * DIM, WIDTH = HEADS * DIM, GROUP = HEADS / KV_HEADS;

struct Params {  // 8 bytes a field but the last, filled by FusedStep in Python in this order
    const int* ids;
    const int* positions;
    const int* tables;
    const int* leads;  // (2, rows): tokens that a row shares, whole pages; the first row of those that share them
    const u16* embed;
    const u16* w_qkv;
    const u16* b_qkv;
    const u16* w_out;
    const u16* w_gate_up;
    const u16* w_down;
    const u16* w_head;
    const u16* norms;
    const u16* q_norm;
    const u16* k_norm;
    const float* cos;
    const float* sin;
    u16* cache;
    float* x;          // the residual stream, (rows, HIDDEN); each number is one thread's own
    u16* vectors;      // inputs of the products: see exchange.cuh
    u64* qkv;          // tagged, (rows, QKV)
    u64* partial;      // tagged, attention of one split: (rows * KV_HEADS, splits, GROUP, DIM + 2)
    u64* squares;      // tagged, sums of squares of the stream: (2, ROWS, PROGRAMS)
    float* logits;     // (rows, VOCAB)
    u64* clocks;       // (PROGRAMS, COSTS), with PROFILE: see clocks.cuh
    u32* epochs;       // of each row, the same for all: the number of this step
    u64 zero;          // which the compiler does not know
    u64 table_width;
    u64 page_stride;   // in elements
    u64 layer_stride;
    u64 value_offset;
    double eps;
    double scale;
    TensorMap cached;  // (pages, 2 LAYERS, PAGE, KV_HEADS, DIM), of which a box is BOX tokens of one head
};

__device__ __forceinline__ float to_float(u16 value) {
    return __uint_as_float((u32)value << 16);
}

__device__ __forceinline__ void unpack(uint4 packed, float* values) {
    const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        values[2 * i] = to_float((u16)words[i]);
        values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// Barriers of some of a block's threads; teams of workers have two and three.
enum BarrierNumber { WORKING = 1, FOUND = 4 };

__device__ __forceinline__ void sync_workers() {
    __syncwarp();
    sync_some<THREADS>(WORKING);
}
