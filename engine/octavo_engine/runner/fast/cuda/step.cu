// One decode step of up to 8 rows for a whole model of Llama's structure, in one launch.
//
// Every block stays on its multiprocessor and walks all layers; between two phases the blocks meet at a barrier in
// global memory. Weights do not wait for the barriers: they come as fast as the queue takes them. The idea of walking a
// whole forward pass in one kernel is that of Hazy Research's Llama megakernel (2025).

struct Memory {
    u64 barriers[2 * DEPTH];
    Head head;
    float factors[MAX_ROWS];
    float squares[ROUND * 4][MAX_ROWS];
};
static_assert(ceil_div(tiles_of(P_OUT), PROGRAMS) <= ROUND * 4, "a block has too many rows of the stream");

// Embeddings of the ids into the stream; also clears the marks. One block a row.
extern "C" __global__ void begin_step(const __grid_constant__ Params p) {
    __shared__ float parts[32];
    const int row = blockIdx.x;
    const u16* from = p.embed + (u64)p.ids[row] * HIDDEN;
    float sum = 0;
    for (int i = threadIdx.x; i < HIDDEN; i += blockDim.x) {
        const float value = to_float(from[i]);
        p.x[row * HIDDEN + i] = value;
        p.scaled[row * HIDDEN + i] = from_float(value * to_float(p.norms[i]));
        sum += value * value;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    for (int i = threadIdx.x; i < PROGRAMS; i += blockDim.x) {
        float total = 0;
        for (int warp = 0; warp < blockDim.x / 32; warp++) total += parts[warp];
        p.squares[(PROGRAMS + i) * MAX_ROWS + row] = i ? 0 : total;
    }
    const int num_marks = 1 + LAYERS * gridDim.x * KV_HEADS;
    for (int i = row * blockDim.x + threadIdx.x; i < num_marks; i += gridDim.x * blockDim.x) p.marks[i] = 0;
}

// 1 / root mean square of each row, from what the blocks that wrote the stream left; a warp for each row.
struct Factor {
    float parts[ceil_div(PROGRAMS, 32)];

    __device__ __forceinline__ Factor(const float* squares, int rows) {
        const int lane = threadIdx.x & 31, row = threadIdx.x >> 5;
#pragma unroll
        for (int i = 0; i < ceil_div(PROGRAMS, 32); i++)
            parts[i] = row < rows && lane + 32 * i < PROGRAMS ? load_shared(squares + (lane + 32 * i) * MAX_ROWS + row) : 0;
    }

    __device__ __forceinline__ void put(const Params& p, int rows, float* factors) const {
        if (threadIdx.x >> 5 >= rows) return;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < ceil_div(PROGRAMS, 32); i++) sum += parts[i];
        sum = warp_sum(sum);
        if ((threadIdx.x & 31) == 0) factors[threadIdx.x >> 5] = rsqrtf(sum / HIDDEN + (float)p.eps);
    }
};

// A projection that adds to the stream: also the inputs of the next norm, and this block's sums of squares.
template <int PHASE>
__device__ __forceinline__ void project_to_stream(
    const Params& p, Queue& queue, Memory& memory, float* sums, const u16* x, const Worker& worker, int& first,
    const u16* norm, float* squares
) {
    constexpr int TILES = span_of(PHASE), ROUNDS = rounds_of(PHASE);
    const int own = (first + worker.tile * PROGRAMS) * 8 + worker.column;  // the column of the first round
    const bool has_own = worker.tile < TILES && own < HIDDEN;
    const float own_x = has_own ? load_shared(p.x + worker.row * HIDDEN + own) : 0;
    const float own_norm = has_own ? to_float(norm[own]) : 0;
    project<PHASE>(queue, x, worker, first, sums, [] {}, [&](int tile, int column, float* total) {
        float square = 0;
        if (column < HIDDEN) {
            const bool is_first = ROUNDS == 1 || column == own;
            const int place = worker.row * HIDDEN + column;
            const float value = (is_first ? own_x : load_shared(p.x + place)) + total[0];
            p.x[place] = value;
            p.scaled[place] = from_float(value * (is_first ? own_norm : to_float(norm[column])));
            square = value * value;
        }
#pragma unroll
        for (int offset = 4; offset; offset >>= 1)
            square += __shfl_xor_sync(0xffu << (threadIdx.x & 24), square, offset, 8);
        if (worker.column == 0) memory.squares[tile][worker.row] = square;
    });
    sync_workers();
    if (threadIdx.x < worker.rows) {
        float sum = 0;
        for (int tile = 0; tile < TILES * ROUNDS; tile++) sum += memory.squares[tile][threadIdx.x];
        squares[blockIdx.x * MAX_ROWS + threadIdx.x] = sum;
    }
}

// The warp that brings the weights of the whole model.
__device__ __forceinline__ void feed_all(const Params& p, Queue& queue) {
    int first = blockIdx.x;
#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++) {
        feed<P_QKV>(queue, p.w_qkv, layer, first);
        feed<P_OUT>(queue, p.w_out, layer, first);
        feed<P_GATE>(queue, p.w_gate_up, layer, first);
        feed<P_DOWN>(queue, p.w_down, layer, first);
    }
    feed<P_HEAD>(queue, p.w_head, 0, first);
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) step(const __grid_constant__ Params p) {
    extern __shared__ __align__(128) char memory_of_queue[];
    float* sums = (float*)(memory_of_queue + DEPTH * STAGE);
    __shared__ Memory memory;
    Queue queue(memory_of_queue, memory.barriers, (u32)(p.rows >> 32));
    if (threadIdx.x == 0) queue.set_up();
    __syncthreads();
    if (threadIdx.x >= THREADS) return feed_all(p, queue);
    const int rows = p.rows;
    const Worker worker(rows);
    float* const after_attention = p.squares;
    float* const after_mlp = p.squares + PROGRAMS * MAX_ROWS;
    int met = 0, first = blockIdx.x;

#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++) {
        const u64 wide = layer;
        if (layer) meet(p.marks, met);
        const Factor factor(after_mlp, rows);
        project<P_QKV>(
            queue, p.scaled, worker, first, sums, [&] { factor.put(p, rows, memory.factors); },
            [&](int, int column, float* total) {
                if (column >= QKV) return;
                float value = total[0] * memory.factors[worker.row];
                if (HAS_BIAS) value += to_float(p.b_qkv[wide * QKV + column]);
                p.qkv[worker.row * QKV + column] = value;
            });
        attention(p, layer, rows, met, memory.head, sums);
        meet(p.marks, met);
        project_to_stream<P_OUT>(p, queue, memory, sums, p.attended, worker, first,
                                 p.norms + (2 * wide + 1) * HIDDEN, after_attention);
        meet(p.marks, met);
        const Factor second(after_attention, rows);
        project<P_GATE>(
            queue, p.scaled, worker, first, sums, [&] { second.put(p, rows, memory.factors); },
            [&](int, int column, float* total) {
                if (column >= INTER) return;
                const float factor = memory.factors[worker.row], gate = total[0] * factor;
                const float active = __fdividef(gate, 1 + exp2_fast(-LOG2E * gate)) * total[1] * factor;
                p.active[worker.row * INTER + column] = from_float(active);
            });
        meet(p.marks, met);
        project_to_stream<P_DOWN>(p, queue, memory, sums, p.active, worker, first,
                                  p.norms + (2 * wide + 2) * HIDDEN, after_mlp);
    }
    meet(p.marks, met);
    const Factor factor(after_mlp, rows);
    project<P_HEAD>(
        queue, p.scaled, worker, first, sums, [&] { factor.put(p, rows, memory.factors); },
        [&](int, int column, float* total) {
            if (column < VOCAB) p.logits[(u64)worker.row * VOCAB + column] = total[0] * memory.factors[worker.row];
        });
}
