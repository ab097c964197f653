// Instructions that CUDA C++ has no name for, and the types of all parts; nothing else here or elsewhere is assembly.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

// Numbers.

__device__ __forceinline__ u16 from_float(float value) {
    u16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ u32 from_floats(float low, float high) {
    u32 result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

__device__ __forceinline__ float exp2_fast(float value) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

// Memory of the device.

// Keys and values of earlier steps, read once.
__device__ __forceinline__ uint4 load_cached(const u16* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

// What other blocks write or read meanwhile.
__device__ __forceinline__ void look(u32 (&v)[4], const u16* from) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(from) : "memory");
}

__device__ __forceinline__ void look(u32 (&v)[2], const u16* from) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v[0]), "=r"(v[1]) : "l"(from) : "memory");
}

__device__ __forceinline__ void look(u32 (&v)[1], const u16* from) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v[0]) : "l"(from) : "memory");
}

__device__ __forceinline__ u64 look(const u64* from) {
    u64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ void store(u16* to, u32 pair) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(to), "r"(pair) : "memory");
}

__device__ __forceinline__ void store(u64* to, u64 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(to), "l"(value) : "memory");
}

// Where others read it only after an arrival has told of it.
__device__ __forceinline__ void store(float* to, float4 v) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}

__device__ __forceinline__ float4 look(const float* from) {
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    return v;
}

// How many arrived here before. What they and their warps, up to a __syncwarp, wrote until then is seen from now on.
__device__ __forceinline__ u32 arrive_at(u32* counter) {
    u32 before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

// Shared memory, and barriers in it that count arrivals and bytes.

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// A number of shared memory, and none beside it.
__device__ __forceinline__ float load_alone(const float* from) { return *(const volatile float*)from; }

// Four matrices of 8 rows of 16 bytes; this thread's address is that of row lane % 8 of matrix lane / 8.
__device__ __forceinline__ void load_matrices(uint4& v, u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
}

// The same, each matrix turned on its diagonal.
__device__ __forceinline__ void load_turned_matrices(uint4& v, u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
}

// 16 bytes of shared memory.
__device__ __forceinline__ uint4 load_shared(u32 from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}

__device__ __forceinline__ void init_barrier(u32 barrier, int num_arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(barrier), "r"(num_arrivals) : "memory");
}

// What init_barrier did is seen by copies too.
__device__ __forceinline__ void fence_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_and_expect(u32 barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_for_barrier(u32 barrier, int parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN;\n}\n"
        :: "r"(barrier), "r"(parity) : "memory");
}

constexpr u64 FIRST_TO_LEAVE = 0x12F0000000000000ull;  // L2, as what is read once

// Into shared memory, told to the barrier.
__device__ __forceinline__ void copy_to_shared(u32 to, const u16* from, int bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
        :: "r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(FIRST_TO_LEAVE) : "memory");
}

// What the driver makes of a tensor of five dimensions, of which boxes may be copied. Of kernels' parameters.
struct __align__(64) TensorMap {
    u64 words[16];
};

// A box, of whole runs of the innermost dimension; the coordinates are of the other dimensions, inner ones first.
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, int a, int b, int c, int d, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;"
        :: "r"(to), "l"(&map), "r"(0), "r"(a), "r"(b), "r"(c), "r"(d), "r"(barrier), "l"(FIRST_TO_LEAVE) : "memory");
}

// 16 bytes into shared memory, or as many zeros, which this thread finds there when it waited for their group.
__device__ __forceinline__ void copy_later(u32 to, const u16* from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// All copies since the last one are a group.
__device__ __forceinline__ void end_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// For all groups of this thread but the last COUNT.
template <int COUNT>
__device__ __forceinline__ void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" :: "n"(COUNT) : "memory");
}

// Work of several threads.

// d += a * b, (16, 16) times (16, 8); each thread of a warp has some of all three.
__device__ __forceinline__ void multiply(float (&d)[4], const uint4& a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// A matrix of 8 rows of 16 bytes, a pair of numbers of row lane / 4 in each thread, turned on its diagonal.
__device__ __forceinline__ u32 turn_matrix(u32 pair) {
    u32 turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

// A barrier, one of fifteen, of so many threads of the block, in whole warps.
template <int COUNT>
__device__ __forceinline__ void sync_some(int number) {
    asm volatile("bar.sync %0, %1;" :: "r"(number), "n"(COUNT) : "memory");
}

// The same for those that others wait for but that wait for nobody.
template <int COUNT>
__device__ __forceinline__ void arrive_at_some(int number) {
    asm volatile("bar.arrive %0, %1;" :: "r"(number), "n"(COUNT) : "memory");
}

// A whole group of four warps gives registers back, or takes more, so that each thread has so many.
template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT));
}
