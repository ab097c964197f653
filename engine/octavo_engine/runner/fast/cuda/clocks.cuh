// Where a step's time goes, if the compiler is told PROFILE: clocks of a thread in each half of a block's workers, as
// there may be two teams in attention, and of the warp that fills the queue. No profiler sees inside one kernel.

enum Phase { P_QKV, P_OUT, P_GATE, P_DOWN, P_HEAD };
enum Cost { C_WAIT, C_MULTIPLY, C_HAND_OUT };  // of each phase, one after the other; then these:
enum OtherCost { C_HEADS = 15, C_LEADS, C_CACHED, C_MERGE, C_QUEUE_FULL, C_MEMORY, COSTS };

__shared__ struct {
    u64* to;
    u64 last[2];
} watch;

__device__ __forceinline__ bool is_watched() { return PROFILE && threadIdx.x % (THREADS / 2) == 0; }
__device__ __forceinline__ u64& last_moment() { return watch.last[threadIdx.x / (THREADS / 2)]; }

__device__ __forceinline__ void begin_watch(u64* clocks) {
    if (!is_watched()) return;
    watch.to = clocks + blockIdx.x * COSTS;
    last_moment() = clock64();
}

// What this thread did since it last told is of this kind.
__device__ __forceinline__ void spent(int cost) {
    if (is_watched()) {
        const u64 now = clock64();
        atomicAdd(watch.to + cost, now - last_moment());  // whose answer nobody waits for
        last_moment() = now;
    }
    if (PROFILE) __syncwarp();
}

struct FeedWatch {  // of the warp that fills the queue
    u64 full = 0, memory = 0, last = 0;

    __device__ __forceinline__ void begin() {
        if (PROFILE) last = clock64();
    }
    __device__ __forceinline__ void add(u64& to) {
        if (!PROFILE) return;
        const u64 now = clock64();
        to += now - last;
        last = now;
    }
    __device__ __forceinline__ void tell(u64* clocks) const {
        if (!PROFILE || threadIdx.x != THREADS) return;
        clocks[blockIdx.x * COSTS + C_QUEUE_FULL] += full;
        clocks[blockIdx.x * COSTS + C_MEMORY] += memory;
    }
};
