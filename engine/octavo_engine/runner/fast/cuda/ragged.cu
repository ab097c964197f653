// Attention of one new token a row over the paged cache, for many rows of any lengths; the new keys and values are in
// the cache already. All blocks have as many tokens to read, so that they end together.
//
// Products are those of tensor cores, of which queries are the columns: all that share a KV head, up to 8, at one cost.
// Where the runs of blocks meet within an item, each leaves a part, and who comes last merges them, in their order, so
// that equal inputs give equal bits.

struct Queries {  // of a KV head, as factors of products: of query lane / 4, which is zero where there is none
    u32 pairs[STEPS][2];

    __device__ __forceinline__ Queries(const Params& p, const Part& part) {
        const int query = own_lane() / 4;
        const u16* from = p.q + part.row * p.q_stride + (part.kv_head * GROUP + query) * DIM + own_lane() % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2 * STEPS; i++) pairs[i / 2][i % 2] = query < GROUP ? __ldg((const u32*)(from + 8 * i)) : 0;
    }
};

// A part as it lies in memory, of each lane what it has in Sums; lanes whose queries are none read others' numbers.
struct Stored {
    float4 values[STEPS], rest;

    static constexpr int STRIDE = 8 * PAIRS * 4;

    // A block leaves two parts at most: of an item that it begins, and of one that another block began.
    static __device__ __forceinline__ float* place(const Params& p, int block, bool is_begin) {
        const u64 part = (block * 2 + is_begin) * TEAM + threadIdx.x / 32;
        return p.parts + part * PART + (own_lane() / 4 * PAIRS + min(own_lane() % 4, PAIRS - 1)) * 4;
    }

    __device__ __forceinline__ void load(const float* from) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) values[i] = look(from + i * STRIDE);
        rest = look(from + STEPS * STRIDE);
    }

    __device__ __forceinline__ void save(float* to) const {
        if (own_lane() % 4 >= PAIRS) return;
#pragma unroll
        for (int i = 0; i < STEPS; i++) store(to + i * STRIDE, values[i]);
        store(to + STEPS * STRIDE, rest);
    }
};

// Over some tokens; dimensions 16 i + lane / 4 and 8 more are those of values[i].
struct Sums : Columns {
    __device__ __forceinline__ void add(const Params& p, const Part& part, int tile, Ring& ring, const Queries& q) {
        const int lane = own_lane(), row = lane % 8, second = lane / 8 % 2, third = lane / 16;
        const u32 keys = ring.take_keys(p, part) + ((row + 8 * second) * DIM * 2 + (row ^ third) * 16);
        float scores[4] = {};
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            uint4 a;
            load_matrices(a, keys ^ (i * 32));
            multiply(scores, a, q.pairs[i][0], q.pairs[i][1]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) scores[k] *= (float)p.scale * LOG2E;
        u32 weights[2];
        weigh(scores, part.length - tile * TILE - lane / 4, weights);
        const u32 turned = ring.take_values(p, part) + ((row + 8 * third) * DIM * 2 + (row ^ second) * 16);
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            uint4 a;
            load_turned_matrices(a, turned ^ (i * 32));
            multiply(values[i], a, weights[0], weights[1]);
        }
    }

    __device__ __forceinline__ Stored stored() const {
        Stored all;
#pragma unroll
        for (int i = 0; i < STEPS; i++) all.values[i] = {values[i][0], values[i][1], values[i][2], values[i][3]};
        all.rest = {highest[0], highest[1], weight[0], weight[1]};
        return all;
    }

    __device__ __forceinline__ void add(const Stored& others) {
        const float4& rest = others.rest;
        const float raised[2] = {fmaxf(highest[0], rest.x), fmaxf(highest[1], rest.y)};
        const float factors[2] = {exp2_fast(rest.x - raised[0]), exp2_fast(rest.y - raised[1])};
        shrink(raised);
        weight[0] += factors[0] * rest.z;
        weight[1] += factors[1] * rest.w;
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            values[i][0] += factors[0] * others.values[i].x;
            values[i][1] += factors[1] * others.values[i].y;
            values[i][2] += factors[0] * others.values[i].z;
            values[i][3] += factors[1] * others.values[i].w;
        }
    }

    __device__ __forceinline__ void write(const Params& p, const Part& part) const {
        const int lane = own_lane(), query = lane / 4;
        const u64 head = part.row * HEADS + part.kv_head * GROUP;
        const float shares[2] = {__fdividef(1, weight[0]), __fdividef(1, weight[1])};
        u16* const to = p.out + (head + query) * DIM + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2 * STEPS; i++) {
            const float* const two = values[i / 2] + i % 2 * 2;
            const u32 pair = turn_matrix(from_floats(two[0] * shares[0], two[1] * shares[1]));
            if (query < GROUP) *(u32*)(to + 8 * i) = pair;
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (query == 0 && 2 * lane + h < GROUP)
                p.log_weights[head + 2 * lane + h] = LN2 * highest[h] + logf(weight[h]);
    }
};

// Leaves the part to whoever comes last at its item; that one gets the sums over all parts.
__device__ __forceinline__ bool merge_parts(const Params& p, const Run& run, const Part& part, Sums& sums) {
    const int first = part.first / run.size, last = (part.first + part.num_tiles - 1) / run.size;
    sums.stored().save(Stored::place(p, blockIdx.x, blockIdx.x == first));
    __syncwarp();
    u32* const arrivals = p.arrivals + part.row * KV_HEADS + part.kv_head;
    int is_last = 0;
    if (own_lane() == 0) is_last = arrive_at(arrivals) == last - first;
    if (!__shfl_sync(~0u, is_last, 0)) return false;
    __syncwarp();
    sums.clear();
    Stored next;
    next.load(Stored::place(p, first, true));
#pragma unroll 1
    for (int block = first; block <= last; block++) {
        const Stored these = next;
        if (block < last) next.load(Stored::place(p, block + 1, false));
        sums.add(these);
    }
    if (own_lane() == 0) *arrivals = 0;
    return true;
}

extern "C" __global__ void __launch_bounds__(32 * TEAM) attend(const __grid_constant__ Params p) {
    extern __shared__ __align__(512) char memory_of_rings[];
    const Run run(p);
    Ring ring(memory_of_rings);
    int row = run.row, row_begin = run.row_begin;
#pragma unroll 1
    for (int at = run.begin; at < run.end;) {
        const int length = row_length(p, row), num_tiles = ceil_div(length, TILE);
        const int team = (at - row_begin) / num_tiles, first = row_begin + team * num_tiles;
        const Part part{row, team * TEAM + (int)threadIdx.x / 32, length, first, num_tiles,
                        at - first, min(num_tiles, run.end - first)};
        ring.begin(p, part);
        const Queries q(p, part);
        Sums sums;
        sums.clear();
#pragma unroll 1
        for (int tile = part.begin; tile < part.end; tile++) sums.add(p, part, tile, ring, q);
        sums.merge_lanes();
        if (part.is_whole() || merge_parts(p, run, part, sums)) sums.write(p, part);
        at = first + part.end;
        if (at == row_begin + TEAMS * num_tiles) {
            row_begin = at;
            row++;
        }
    }
}
