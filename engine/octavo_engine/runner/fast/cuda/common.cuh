// What all parts of the decode step share: constants of the model, types, loads, and the barrier of the grid.
//
// The compiler is given PROGRAMS (thread blocks, one a multiprocessor), DEPTH (stages of the queue of weights), HIDDEN,
// INTER, VOCAB, LAYERS, HEADS, KV_HEADS, DIM, PAGE, HAS_HEAD_NORM and HAS_BIAS. Weights are bfloat16.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

constexpr int WARPS = 16, THREADS = 32 * WARPS;  // that work; one more warp brings the weights
constexpr int MAX_ROWS = 8;
constexpr float LOG2E = 1.44269504f;
constexpr int QKV = (HEADS + 2 * KV_HEADS) * DIM, WIDTH = HEADS * DIM, GROUP = HEADS / KV_HEADS;

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct Params {  // 8 bytes a field, filled by FusedStep in Python in this order
    const int* ids;
    const int* positions;
    const int* tables;
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
    float* x;          // the residual stream, (rows, HIDDEN)
    u16* scaled;       // the stream times the weights of the next norm
    float* qkv;        // (rows, QKV)
    u16* attended;     // (rows, WIDTH)
    u16* active;       // (rows, INTER)
    float* partial;    // attention of one split: (rows * KV_HEADS, MAX_SPLITS, GROUP, DIM + 2)
    float* logits;     // (rows, VOCAB)
    float* squares;    // sums of squares of the stream: (2, PROGRAMS, MAX_ROWS)
    int* marks;        // the barrier's counter, then a ticket for each layer, row and KV head
    u64 rows;
    u64 table_width;
    u64 page_stride;   // in elements
    u64 layer_stride;
    u64 value_offset;
    double eps;
    double scale;
};

__device__ __forceinline__ float to_float(u16 value) {
    return __uint_as_float((u32)value << 16);
}

__device__ __forceinline__ u16 from_float(float value) {
    u16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ void unpack(uint4 packed, float* values) {
    const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        values[2 * i] = to_float((u16)words[i]);
        values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

// Loads of what other blocks wrote during this launch: from L2, since L1 may hold what was there before.
__device__ __forceinline__ float load_shared(const float* from) {
    float value;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ uint4 load_shared(const u16* from) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}

// Keys and values of earlier steps, read once.
__device__ __forceinline__ uint4 load_cached(const u16* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

__device__ __forceinline__ float exp2_fast(float value) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

__device__ __forceinline__ void sync_workers() {
    __syncwarp();
    asm volatile("bar.sync 1, %0;" :: "n"(THREADS) : "memory");
}

// Wait until the workers of every block came `met` times; what they stored before is visible after.
__device__ __forceinline__ void meet(int* counter, int& met) {
    met += PROGRAMS;
    sync_workers();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"(counter) : "memory");
        int seen;
        do {
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        } while (seen < met);
    }
    sync_workers();
}
