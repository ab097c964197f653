// The way of the weights: one warp brings them from memory to a queue in shared memory, in the order in which all
// phases of all layers use them, whatever the other warps wait for. (Cached keys and values may come the same way, see
// cached.cuh.)
//
// A tile is 8 output features, rows of the matrix. A stage of the queue holds the rows of a tile for SEGMENT columns,
// brought by bulk copies of 2 KB, a row each (1 KB brings 3.5 TB/s instead of 4). This block's tiles of a phase are
// taken in rounds; the stages of a round go over its tiles, for each run of columns. A tile of the gate has two stages,
// that of the up projection is the second.

constexpr int SEGMENT = 1024;
constexpr int PITCH = 2 * SEGMENT + 16;  // bytes from row to row, so that eight rows of 16 bytes lie in all banks
constexpr int STAGE = 8 * PITCH;
constexpr int ROUND = ROWS <= 4 ? 6 : 24;  // most stages of the same columns that a block works on at once

constexpr int columns_of(int phase) { return phase == P_OUT ? WIDTH : phase == P_DOWN ? INTER : HIDDEN; }
constexpr int outputs_of(int phase) {
    return phase == P_QKV ? QKV : phase == P_GATE ? INTER : phase == P_HEAD ? VOCAB : HIDDEN;
}
constexpr int parts_of(int phase) { return phase == P_GATE ? 2 : 1; }
constexpr int tiles_of(int phase) { return ceil_div(outputs_of(phase), 8); }
constexpr int most_tiles(int phase) { return ceil_div(tiles_of(phase), PROGRAMS); }  // of a block
constexpr int rounds_of(int phase) { return ceil_div(most_tiles(phase) * parts_of(phase), ROUND); }
constexpr int span_of(int phase) { return ceil_div(most_tiles(phase), rounds_of(phase)); }  // tiles of a round
constexpr int steps_of(int phase) { return ceil_div(columns_of(phase), SEGMENT); }
constexpr int stages_of(int phase) { return most_tiles(phase) * parts_of(phase) * steps_of(phase); }

// Stages asked for and not yet there, see Queue::put. Where a layer is long, the numbers that wait behind them are few.
constexpr int LAYER_STAGES = stages_of(P_QKV) + stages_of(P_OUT) + stages_of(P_GATE) + stages_of(P_DOWN);
constexpr int MOST_IN_FLIGHT = LAYER_STAGES < 128 ? 3 : 5, IN_FLIGHT = DEPTH < MOST_IN_FLIGHT ? DEPTH : MOST_IN_FLIGHT;

// Which of its tiles of a phase is a block's first, as a number of a block: those before EXTRA have one tile more. The
// tiles of the stream stay where they are; the blocks that have one less of these, LIGHT, are the first to have more of
// others, and who else has changes from phase to phase.
constexpr int LIGHT = (PROGRAMS - tiles_of(P_OUT) % PROGRAMS) % PROGRAMS;

__device__ __forceinline__ int first_tile() {
    return blockIdx.x < PROGRAMS - LIGHT ? blockIdx.x + LIGHT : blockIdx.x - (PROGRAMS - LIGHT);
}

template <int PHASE>
__device__ __forceinline__ void leave(int& first) {
    constexpr int EXTRA = tiles_of(PHASE) % PROGRAMS, OF_LIGHT = EXTRA < LIGHT ? EXTRA : LIGHT;
    const bool is_light = first < LIGHT;
    const int begin = is_light ? 0 : LIGHT, size = is_light ? LIGHT : PROGRAMS - LIGHT;
    first -= is_light ? OF_LIGHT : EXTRA - OF_LIGHT;
    if (first < begin) first += size;
}

struct Queue {
    u32 stages, full, empty;  // addresses in shared memory: data, and a barrier for each stage and direction
    int slot, parity;
    u32 zero;                 // which the compiler does not know to be zero
    FeedWatch watch;

    __device__ Queue(char* memory, u64* barriers, u32 zero)
        : stages(shared_address(memory)), full(shared_address(barriers)), empty(full + 8 * DEPTH), slot(0), parity(0),
          zero(zero) {}

    __device__ void set_up() const {
        for (int i = 0; i < DEPTH; i++) {
            init_barrier(full + 8 * i, 1);
            init_barrier(empty + 8 * i, WARPS);
        }
        fence_barriers();
    }

    __device__ __forceinline__ void advance() {
        if (++slot == DEPTH) {
            slot = 0;
            parity ^= 1;
        }
    }

    // Until the next stage is empty; a whole warp's work. More is not asked of memory at a time than it needs to be
    // busy: the numbers that blocks wait for would stand behind all of it.
    __device__ __forceinline__ void wait_for_room() {
        watch.begin();
        wait_for_barrier(empty + 8 * slot, parity ^ 1);
        watch.add(watch.full);
        const int trail = slot - IN_FLIGHT;
        if (trail >= 0) wait_for_barrier(full + 8 * trail, parity);
        else wait_for_barrier(full + 8 * (trail + DEPTH), parity ^ 1);
        watch.add(watch.memory);
        __syncwarp();  // all lanes have seen both: of no rows, one arrival alone lets the other warps move them on
    }

    // Bring `bytes`, by what `copy` asks for of the lanes that are `used`, told where to and whom to tell.
    template <typename Copy>
    __device__ __forceinline__ void put(int bytes, bool is_used, Copy copy) {
        const u32 barrier = full + 8 * slot;
        wait_for_room();
        if ((threadIdx.x & 31) == 0) arrive_and_expect(barrier, bytes);
        __syncwarp();
        if (is_used) copy(stages + STAGE * slot, barrier);
        advance();
    }

    // The oldest stage when it is there; `offset` is of this thread's row and columns for the first of the four loads,
    // each of which brings 32 columns. Returns what `release` wants.
    __device__ __forceinline__ u32 take(uint4 (&parts)[4], u32 offset) {
        const u32 from = stages + STAGE * slot + offset, barrier = empty + 8 * slot;
        wait_for_barrier(full + 8 * slot, parity);
#pragma unroll
        for (int i = 0; i < 4; i++) load_matrices(parts[i], from + 64 * i);
        advance();
        return barrier;
    }

    // The stage may be filled again. It is as soon as this is told, so all loads must be over: the address needs them.
    __device__ __forceinline__ void release(u32 barrier, const uint4 (&parts)[4]) const {
        barrier += (parts[0].x | parts[1].x | parts[2].x | parts[3].x) & zero;
        if ((threadIdx.x & 31) == 0) arrive(barrier);
    }

    // The address of the oldest stage when it is there.
    __device__ __forceinline__ u32 wait() const {
        wait_for_barrier(full + 8 * slot, parity);
        return stages + STAGE * slot;
    }

    // It may be filled again; what was read of it has to be there, which `seen` shows.
    __device__ __forceinline__ void give_back(u32 seen) {
        __syncwarp();
        if ((threadIdx.x & 31) == 0) arrive(empty + 8 * slot + (seen & zero));
        advance();
    }

    // It is of no use to this warp.
    __device__ __forceinline__ void pass() {
        wait();
        give_back(0);
    }
};

// Bring this block's tiles of one matrix in the order in which `project` takes them.
template <int PHASE>
__device__ __forceinline__ void feed(Queue& queue, const u16* matrix, int layer, int first) {
    constexpr int K = columns_of(PHASE), PARTS = parts_of(PHASE), SPAN = span_of(PHASE), ALL = outputs_of(PHASE);
    if (first >= tiles_of(PHASE)) return;
    if (PHASE != P_HEAD) matrix += (u64)layer * PARTS * ALL * K;
    matrix += (u64)(threadIdx.x & 31) * K;
#pragma unroll 1
    for (int round = 0; round < rounds_of(PHASE); round++)
#pragma unroll 1
        for (int step = 0; step < steps_of(PHASE); step++)
#pragma unroll 1
            for (int i = 0; i < SPAN * PARTS; i++) {
                const int row = (first + (round * SPAN + i / PARTS) * PROGRAMS) * 8, column = step * SEGMENT;
                const u16* from = matrix + (u64)(row + i % PARTS * ALL) * K + column;
                const int count = min(8, ALL - row), bytes = 2 * min(SEGMENT, K - column), lane = threadIdx.x & 31;
                queue.put(max(count, 0) * bytes, lane < count, [&](u32 stage, u32 barrier) {
                    copy_to_shared(stage + PITCH * lane, from, bytes, barrier);
                });
            }
}
