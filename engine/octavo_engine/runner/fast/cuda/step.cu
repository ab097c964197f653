// One decode step of up to 8 rows for a whole model of Llama's structure, in one launch.
//
// Every block stays on its multiprocessor and walks all layers; in each phase it waits for the numbers it needs and for
// nothing else. Weights wait for nobody: they come as fast as the queue takes them. The idea of walking a whole forward
// pass in one kernel is that of Hazy Research's Llama megakernel (2025).

struct Memory {
    u64 barriers[2 * DEPTH];
    Places places[TEAMS];
    float factors[MAX_ROWS];
    float squares[WARPS][MAX_ROWS];
};

static_assert(sizeof(Memory) + sizeof watch <= STATIC_BYTES, "Python leaves so much for it");

constexpr int STREAM_BLOCKS = tiles_of(P_OUT) < PROGRAMS ? tiles_of(P_OUT) : PROGRAMS;  // that write the stream

// Embeddings of the ids into the stream, and the number of this step. One block a row.
extern "C" __global__ void begin_step(const __grid_constant__ Params p) {
    __shared__ float parts[32];
    const int row = blockIdx.x;
    const u32 epoch = p.epochs[row] + 1;
    Vectors vectors(p, epoch);
    const u16* from = p.embed + (u64)p.ids[row] * HIDDEN;
    float sum = 0;
    for (int i = 2 * threadIdx.x; i < HIDDEN; i += 2 * blockDim.x) {
        const float low = to_float(from[i]), high = to_float(from[i + 1]);
        *(float2*)(p.x + row * HIDDEN + i) = float2{low, high};
        vectors.put(Vectors::place<V_STREAM>(0, row, i),
                    from_floats(low * to_float(p.norms[i]), high * to_float(p.norms[i + 1])));
        sum += low * low + high * high;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) p.epochs[row] = epoch;
    for (int i = threadIdx.x; i < STREAM_BLOCKS; i += blockDim.x) {
        float total = 0;
        for (int warp = 0; warp < blockDim.x / 32; warp++) total += parts[warp];
        put_tagged(p.squares + (ROWS + row) * PROGRAMS + i, i ? 0 : total, epoch * (LAYERS + 1));
    }
}

// 1 / root mean square of each row, from what the blocks that wrote the stream left; a warp for each row.
struct Factor {
    static constexpr int N = ceil_div(STREAM_BLOCKS, 32);
    Tagged<N> parts;
    const u64* row;

    __device__ __forceinline__ explicit Factor(const u64* squares) : row(squares + threadIdx.x / 32 * PROGRAMS) {}

    __device__ __forceinline__ const u64* place(int i) const {
        return row + min((int)threadIdx.x % 32 + 32 * i, STREAM_BLOCKS - 1);
    }

    __device__ __forceinline__ void ask() {
        if (threadIdx.x >= 32 * ROWS) return;
#pragma unroll
        for (int i = 0; i < N; i++) parts.ask(i, place(i));
    }

    __device__ __forceinline__ void put(const Params& p, u32 tag, float* factors) {
        if (threadIdx.x >= 32 * ROWS) return;
        parts.wait(tag, [&](int i) { return place(i); });
        __syncwarp();
        float sum = 0;
#pragma unroll
        for (int i = 0; i < N; i++) sum += threadIdx.x % 32 + 32 * i < STREAM_BLOCKS ? parts.value(i) : 0;
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) factors[threadIdx.x / 32] = rsqrtf(sum / HIDDEN + (float)p.eps);
    }
};

// This block's sums of squares of what it wrote to the stream. Every thread has some of one row, those of OUTPUTS
// features together; few of them are all in the first warp.
template <int OUTPUTS>
__device__ __forceinline__ void put_squares(float square, Memory& memory, u64* squares, u32 tag) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int offset = ROWS; offset < 32 && offset < OUTPUTS * ROWS; offset <<= 1)
        square += __shfl_xor_sync(~0u, square, offset);
    if (OUTPUTS * ROWS > 32) {
        if (lane < ROWS) memory.squares[threadIdx.x >> 5][lane] = square;
        sync_workers();
        square = 0;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) square += memory.squares[warp][own_row()];
    }
    if (threadIdx.x < ROWS) put_tagged(squares + threadIdx.x * PROGRAMS + blockIdx.x, square, tag);
}

// A projection that adds to the stream: also the inputs of the next norm.
template <int PHASE, int TO>
__device__ __forceinline__ void project_to_stream(
    const Params& p, Queue& queue, const Vectors& vectors, Memory& memory, float* reduced, const u16* x,
    const u16* norm, int layer, u64* squares, u32 tag
) {
    constexpr int OUTPUTS = span_of(PHASE) * 8;
    const int first = blockIdx.x;
    if (first >= tiles_of(PHASE)) return;
    const int own = (first + own_feature() / 8 * PROGRAMS) * 8 + own_feature() % 8;
    const bool has_own = own_feature() < OUTPUTS && own < HIDDEN;
    float* const stream = p.x + own_row() * HIDDEN;
    const float own_x = has_own ? stream[own] : 0;  // the first of them, ahead
    const float own_norm = has_own ? to_float(norm[own]) : 0;
    const int own_place = Vectors::place<TO>(layer, own_row(), own);
    float square = 0;
    project<PHASE>(queue, x, first, reduced, [] {}, [] {}, [&](int column, float sum, float) {
        constexpr bool IS_ONE = OUTPUTS <= STRIDE_OF_FEATURES && rounds_of(PHASE) == 1;
        const bool is_first = IS_ONE || column == own, is_there = IS_ONE ? has_own : column < HIDDEN;
        const float value = (is_first ? own_x : is_there ? stream[column] : 0) + sum;
        const float scaled = value * (is_first ? own_norm : is_there ? to_float(norm[column]) : 0);
        const float next = of_neighbour(scaled);
        if (!is_there) return;
        if (column % 2 == 0)
            vectors.put(is_first ? own_place : Vectors::place<TO>(layer, own_row(), column), from_floats(scaled, next));
        stream[IS_ONE ? own : column] = value;
        square += value * value;
    });
    put_squares<OUTPUTS * rounds_of(PHASE)>(square, memory, squares, tag);
}

// The warp that brings the weights of the whole model, and cached keys and values.
__device__ __forceinline__ void feed_all(const Params& p, Queue& queue, const Places (&places)[TEAMS]) {
    int first = first_tile();
#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++) {
        feed<P_QKV>(queue, p.w_qkv, layer, first);
        leave<P_QKV>(first);
        if (IS_QUEUED) feed_cached(p, queue, places, layer);
        feed<P_OUT>(queue, p.w_out, layer, blockIdx.x);
        feed<P_GATE>(queue, p.w_gate_up, layer, first);
        leave<P_GATE>(first);
        feed<P_DOWN>(queue, p.w_down, layer, blockIdx.x);
    }
    feed<P_HEAD>(queue, p.w_head, 0, first);
    queue.watch.tell(p.clocks);
}

extern "C" __global__ void __launch_bounds__(THREADS + 32 * FEEDERS, 1) step(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) char memory_of_queue[];
    float* const reduced = (float*)(memory_of_queue + DEPTH * STAGE);
    __shared__ Memory memory;
    Queue queue(memory_of_queue, memory.barriers, (u32)p.zero);
    if (threadIdx.x == 0) queue.set_up();
    __syncthreads();
    if (threadIdx.x >= THREADS) {  // so many, since registers are shared out among four warps
        give_registers<24>();
        if (threadIdx.x < THREADS + 32) feed_all(p, queue, memory.places);
        return;
    }
    take_registers<240>();
    begin_watch(p.clocks);
    const u32 epoch = p.epochs[0];
    const Vectors vectors(p, epoch);
    u64* const after_attention = p.squares;
    u64* const after_mlp = p.squares + ROWS * PROGRAMS;
    u32 tag = epoch * (LAYERS + 1);
    int first = first_tile();
    if (warp_of_team() == 0) {
        memory.places[team()].find(p, team());
        __syncwarp();
        if (IS_QUEUED) arrive_at_some<32 * (TEAMS + 1)>(FOUND);
    }

#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++, tag++) {
        const u64 wide = layer;
        if (first < tiles_of(P_QKV)) {
            Factor factor(after_mlp);
            project<P_QKV>(
                queue, vectors.at<V_STREAM>(layer), first, reduced,
                [&] { factor.ask(); }, [&] { factor.put(p, tag, memory.factors); },
                [&](int column, float sum, float) {
                    if (column >= QKV) return;
                    float value = sum * memory.factors[own_row()];
                    if (HAS_BIAS) value += to_float(p.b_qkv[wide * QKV + column]);
                    put_tagged(p.qkv + own_row() * QKV + column, value, tag);
                });
        }
        leave<P_QKV>(first);
        if (layer == 0) sync_workers();  // the places are found
        attention(p, queue, vectors, layer, tag, memory.places, (Head*)reduced);
        project_to_stream<P_OUT, V_MIDDLE>(
            p, queue, vectors, memory, reduced, vectors.at<V_ATTENDED>(layer),
            p.norms + (2 * wide + 1) * HIDDEN, layer, after_attention, tag);
        if (first < tiles_of(P_GATE)) {
            Factor factor(after_attention);
            project<P_GATE>(
                queue, vectors.at<V_MIDDLE>(layer), first, reduced,
                [&] { factor.ask(); }, [&] { factor.put(p, tag, memory.factors); },
                [&](int column, float sum, float up) {
                    const float scale = memory.factors[own_row()], gate = sum * scale;
                    const float active = __fdividef(gate, 1 + exp2_fast(-LOG2E * gate)) * up * scale;
                    const float next = of_neighbour(active);
                    if (column < INTER && column % 2 == 0)
                        vectors.put(Vectors::place<V_ACTIVE>(layer, own_row(), column), from_floats(active, next));
                });
        }
        leave<P_GATE>(first);
        project_to_stream<P_DOWN, V_STREAM>(
            p, queue, vectors, memory, reduced, vectors.at<V_ACTIVE>(layer),
            p.norms + (2 * wide + 2) * HIDDEN, layer + 1, after_mlp, tag + 1);
    }
    if (first >= tiles_of(P_HEAD)) return;
    Factor factor(after_mlp);
    project<P_HEAD>(
        queue, vectors.at<V_STREAM>(LAYERS), first, reduced,
        [&] { factor.ask(); }, [&] { factor.put(p, tag, memory.factors); },
        [&](int column, float sum, float) {
            if (column < VOCAB) p.logits[(u64)own_row() * VOCAB + column] = sum * memory.factors[own_row()];
        });
}
