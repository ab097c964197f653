// What CUDA C++ adds to C++, as far as our kernels use it.
#pragma once

#include <cmath>
#include <numeric>

#include "fibers.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ thread_local
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

using std::max;
using std::min;

struct Index {
    unsigned x;
};
inline thread_local Index threadIdx, blockIdx;
inline Index blockDim, gridDim;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

template <typename To, typename From>
To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
inline unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float value) { return 1 / sqrtf(value); }

template <typename T>
T __ldg(const T* from) {
    return *from;
}

template <typename T>
T atomicAdd(T* to, T value) {
    const T before = *to;
    *to += value;
    return before;
}

inline unsigned long long clock64() {
    static thread_local unsigned long long clock;
    return ++clock;
}

inline void __syncthreads() {
    meet(block->all, blockDim.x, "__syncthreads");
    maybe_hold_back();
}

inline void __syncwarp() { share(0, "__syncwarp"); }

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
    return share(value, "__shfl_sync")[lane % 32];
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int offset) {
    return share(value, "__shfl_xor_sync")[threadIdx.x % 32 ^ offset];
}

template <typename T>
T __shfl_down_sync(unsigned, T value, int offset) {
    const int lane = threadIdx.x % 32;
    return share(value, "__shfl_down_sync")[lane + offset < 32 ? lane + offset : lane];
}

template <typename T>
T __shfl_up_sync(unsigned, T value, int offset) {
    const int lane = threadIdx.x % 32;
    return share(value, "__shfl_up_sync")[lane < offset ? lane : lane - offset];
}

inline int __reduce_add_sync(unsigned, int value) {
    const int* const values = share(value, "__reduce_add_sync");
    return std::accumulate(values, values + 32, 0);
}

inline int __reduce_max_sync(unsigned, int value) {
    const int* const values = share(value, "__reduce_max_sync");
    return *std::max_element(values, values + 32);
}
