// The matrix products: one warp brings weights from memory to a queue in shared memory, in the order in which all
// phases of all layers use them, whatever the barriers between the phases do; the other warps multiply.
//
// A stage of the queue holds 8 rows (output features) of SEGMENT columns, brought by bulk copies, a row each. The warps
// share out its columns, 64 each; the tensor cores take 8 rows of weights against up to 8 rows of inputs, and every
// thread's 16 bytes stand for the same columns on both sides, so that no fragment needs to be rearranged.

constexpr int UNIT = 64;                 // columns of a stage for each warp
constexpr int SEGMENT = UNIT * WARPS;
constexpr int PITCH = 2 * SEGMENT + 64;  // bytes from row to row, so that eight neighbouring readers use all banks
constexpr int STAGE = 8 * PITCH;
constexpr int ROUND = 6;                 // most stages of the same columns that a block works on at once

enum Phase { P_QKV, P_OUT, P_GATE, P_DOWN, P_HEAD, NUM_PHASES };

// For P_GATE a tile is a pair: 8 rows of the gate and the same of the up projection.
constexpr int columns_of(int phase) { return phase == P_OUT ? WIDTH : phase == P_DOWN ? INTER : HIDDEN; }
constexpr int rows_of(int phase) {
    return phase == P_QKV ? QKV : phase == P_GATE ? INTER : phase == P_HEAD ? VOCAB : HIDDEN;
}
constexpr int parts_of(int phase) { return phase == P_GATE ? 2 : 1; }
constexpr int tiles_of(int phase) { return ceil_div(rows_of(phase), 8); }
constexpr int rounds_of(int phase) { return ceil_div(ceil_div(tiles_of(phase), PROGRAMS) * parts_of(phase), ROUND); }
constexpr int span_of(int phase) {  // stages a round, of the same columns
    return ceil_div(ceil_div(tiles_of(phase), PROGRAMS), rounds_of(phase)) * parts_of(phase);
}
constexpr int steps_of(int phase) { return ceil_div(columns_of(phase), SEGMENT); }
constexpr int held_of(int phase) {  // units whose inputs are in registers
    const int most = span_of(phase) <= 2 ? 4 : 2;
    return steps_of(phase) < most ? steps_of(phase) : most;
}

// Blocks that get one tile more than others are others in each phase.
template <int PHASE>
__device__ __forceinline__ void leave(int& first) {  // `first` is this block's first tile: of PHASE, then of the next
    constexpr int EXTRA = tiles_of(PHASE) % PROGRAMS;
    first += first < EXTRA ? PROGRAMS - EXTRA : -EXTRA;
}

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

struct Queue {
    u32 stages, full, empty;  // addresses in shared memory: data, and a barrier for each stage and direction
    int slot, parity;
    u32 zero;                 // which the compiler does not know to be zero

    __device__ Queue(char* memory, u64* barriers, u32 zero)
        : stages(shared_address(memory)), full(shared_address(barriers)), empty(full + 8 * DEPTH), slot(0), parity(0),
          zero(zero) {}

    __device__ void set_up() const {
        for (int i = 0; i < DEPTH; i++) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(full + 8 * i) : "memory");
            asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(empty + 8 * i), "r"(WARPS) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    static __device__ __forceinline__ void wait(u32 barrier, int parity) {
        asm volatile(
            "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN;\n}\n"
            :: "r"(barrier), "r"(parity) : "memory");
    }

    __device__ __forceinline__ void advance() {
        if (++slot == DEPTH) {
            slot = 0;
            parity ^= 1;
        }
    }

    // Bring `count` rows of `bytes` each, `pitch` elements apart; a whole warp's work.
    __device__ __forceinline__ void put(const u16* from, int count, int bytes, int pitch) {
        const int lane = threadIdx.x & 31;
        const u32 barrier = full + 8 * slot;
        wait(empty + 8 * slot, parity ^ 1);
        if (lane == 0)
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(barrier), "r"(max(count, 0) * bytes)
                         : "memory");
        __syncwarp();
        if (lane < count)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                "[%3], %4;"
                :: "r"(stages + STAGE * slot + PITCH * lane), "l"(from + (u64)lane * pitch), "r"(bytes), "r"(barrier),
                   "l"(0x12F0000000000000ull)  // evict first: weights are read once a step
                : "memory");
        advance();
    }

    // The oldest stage: 16 bytes of columns 0 to 31 and of 32 to 63 of this warp's unit, in this thread's row. Returns
    // what `release` wants.
    __device__ __forceinline__ u32 take(uint4& low, uint4& high) {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const u32 from = stages + STAGE * slot + PITCH * (lane >> 2) + 2 * UNIT * warp + 16 * (lane & 3);
        const u32 barrier = empty + 8 * slot;
        wait(full + 8 * slot, parity);
        __syncwarp();
        load(low, from);
        load(high, from + 64);
        advance();
        return barrier;
    }

    // The stage may be filled again. It is as soon as this is told, so both loads must be over: the address needs them.
    __device__ __forceinline__ void release(u32 barrier, const uint4& low, const uint4& high) const {
        barrier += (low.x | high.x) & zero;
        if ((threadIdx.x & 31) == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(barrier) : "memory");
    }

    static __device__ __forceinline__ void load(uint4& v, u32 from) {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    }
};

// Bring this block's tiles of one matrix, (parts * rows, columns), in the order in which `project` takes them.
template <int PHASE>
__device__ __forceinline__ void feed(Queue& queue, const u16* matrix, int layer, int& first) {
    constexpr int K = columns_of(PHASE), PARTS = parts_of(PHASE), TILES = span_of(PHASE) / PARTS;
    if (PHASE != P_HEAD) matrix += (u64)layer * PARTS * rows_of(PHASE) * K;
#pragma unroll 1
    for (int round = 0; round < rounds_of(PHASE); round++)
#pragma unroll 1
        for (int step = 0; step < steps_of(PHASE); step++)
#pragma unroll 1
            for (int i = 0; i < TILES * PARTS; i++) {
                const int row = (first + (round * TILES + i / PARTS) * PROGRAMS) * 8, column = step * SEGMENT;
                const u16* from = matrix + (u64)(row + i % PARTS * rows_of(PHASE)) * K + column;
                queue.put(from, min(8, rows_of(PHASE) - row), 2 * min(SEGMENT, K - column), K);
            }
    leave<PHASE>(first);
}

__device__ __forceinline__ void multiply(float (&sums)[4], u32 a0, u32 a2, u32 b0, u32 b1) {
    // Inputs of rows 8 to 15 are none: a1 and a3 are zero, and so are the last two sums.
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%5}, {%7,%8}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1));
}

struct Inputs {  // of one unit: this thread's 16 bytes of columns 0 to 31 and of 32 to 63
    uint4 low, high;
};

template <int PHASE>
__device__ __forceinline__ void load_inputs(Inputs& in, const u16* x, int step, int rows) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    constexpr int K = columns_of(PHASE);
    const int column = (step * WARPS + warp) * UNIT + 8 * (lane & 3);
    const u16* from = x + (u64)(lane >> 2) * K + column;
    const bool is_there = (lane >> 2) < rows;
    in.low = is_there && column < K ? load_shared(from) : uint4{0, 0, 0, 0};
    in.high = is_there && column + 32 < K ? load_shared(from + 32) : uint4{0, 0, 0, 0};
}

// What lies past a matrix's last column in a stage is of an earlier stage, or nothing at all: not a number, maybe.
template <int PHASE>
__device__ __forceinline__ void cut(uint4& low, uint4& high, int step) {
    constexpr int K = columns_of(PHASE);
    if (K % SEGMENT == 0) return;
    const int column = (step * WARPS + (threadIdx.x >> 5)) * UNIT + 8 * (threadIdx.x & 3);
    if (column >= K) low = uint4{0, 0, 0, 0};
    if (column + 32 >= K) high = uint4{0, 0, 0, 0};
}

struct Worker {  // which sum of a round is this thread's: there is one at most
    int rows, tile, row, column;

    __device__ Worker(int rows)
        : rows(rows), tile(threadIdx.x / (rows * 8)), row(threadIdx.x % (rows * 8) / 8), column(threadIdx.x % 8) {}
};
static_assert(ROUND * MAX_ROWS * 8 <= THREADS, "a thread has more than one sum");

// One phase: this block's tiles of its matrix times the rows of x; `use(tile, column, sums)` gets this thread's sums of
// each round, for P_GATE of both parts. `prepare` is called once before that, when all is under way.
template <int PHASE, typename Prepare, typename Use>
__device__ __forceinline__ void project(
    Queue& queue, const u16* x, const Worker& worker, int& first, float* reduced, Prepare prepare, Use use
) {
    constexpr int SPAN = span_of(PHASE), STEPS = steps_of(PHASE), HELD = held_of(PHASE);
    constexpr int PARTS = parts_of(PHASE), TILES = SPAN / PARTS, PAIR = SPAN % 2 ? 1 : 2;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Inputs inputs[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++) load_inputs<PHASE>(inputs[i], x, i, worker.rows);
#pragma unroll 1
    for (int round = 0; round < rounds_of(PHASE); round++) {
        float sums[SPAN][4] = {};
#pragma unroll 1
        for (int begin = 0; begin < STEPS; begin += HELD) {
            if (STEPS > HELD && (begin || round)) {
#pragma unroll
                for (int i = 0; i < HELD; i++) load_inputs<PHASE>(inputs[i], x, begin + i, worker.rows);
            }
#pragma unroll
            for (int i = 0; i < HELD; i++) {
                if (STEPS % HELD && begin + i >= STEPS) break;
#pragma unroll
                for (int j = 0; j < SPAN; j += PAIR) {
                    uint4 low[PAIR], high[PAIR];
                    u32 taken[PAIR];
#pragma unroll
                    for (int k = 0; k < PAIR; k++) taken[k] = queue.take(low[k], high[k]);
#pragma unroll
                    for (int k = 0; k < PAIR; k++) {
                        queue.release(taken[k], low[k], high[k]);
                        cut<PHASE>(low[k], high[k], begin + i);
                    }
                    const uint4 a = inputs[i].low, b = inputs[i].high;
#pragma unroll
                    for (int k = 0; k < PAIR; k++) multiply(sums[j + k], a.x, a.y, low[k].x, low[k].y);
#pragma unroll
                    for (int k = 0; k < PAIR; k++) multiply(sums[j + k], a.z, a.w, low[k].z, low[k].w);
#pragma unroll
                    for (int k = 0; k < PAIR; k++) multiply(sums[j + k], b.x, b.y, high[k].x, high[k].y);
#pragma unroll
                    for (int k = 0; k < PAIR; k++) multiply(sums[j + k], b.z, b.w, high[k].z, high[k].w);
                }
            }
        }
        if (round) sync_workers();  // the sums of the round before are used
        else prepare();
        if ((lane >> 2) < worker.rows) {
#pragma unroll
            for (int j = 0; j < SPAN; j++)
                *(float2*)(reduced + (j * WARPS + warp) * 64 + 2 * lane) = float2{sums[j][0], sums[j][1]};
        }
        sync_workers();
        if (worker.tile < TILES) {
            float total[PARTS] = {};
            const float* from = reduced + worker.tile * PARTS * WARPS * 64 + worker.row * 8 + worker.column;
#pragma unroll
            for (int part = 0; part < PARTS; part++)
#pragma unroll
                for (int w = 0; w < WARPS; w++) total[part] += from[(part * WARPS + w) * 64];
            const int tile = round * TILES + worker.tile;
            use(tile, (first + tile * PROGRAMS) * 8 + worker.column, total);
        }
    }
    leave<PHASE>(first);
}
