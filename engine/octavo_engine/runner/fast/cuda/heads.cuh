// The first half of attention: what a block works on, and the heads of the new token on their way from the projection
// into shared memory and the cache. See attention.cuh for the whole.

constexpr int MAX_SPLITS = 16;
constexpr int LANES = DIM / 8;               // that share a token
constexpr int TOKENS = 32 / LANES;           // a warp takes at once
constexpr int HELD_HEADS = GROUP < 4 ? GROUP : 4;
constexpr int BATCH = HELD_HEADS < 3 ? 4 : 2;      // times TOKENS a warp has under way: what the registers hold
constexpr int CHUNK = BATCH * TOKENS * WARPS;      // a split is a multiple of so many tokens
constexpr float NEVER = -1e30f;

struct Head {  // in shared memory
    float q[GROUP][DIM];
    float key[DIM], value[DIM];
    float own[GROUP];                        // scores of the new token
    float highest[WARPS][HELD_HEADS], weight[WARPS][HELD_HEADS];
    int ticket;
};

struct Place {  // of one unit of work
    int row, kv_head, split, num_splits, position, begin, end;
    const int* table;

    __device__ Place(const Params& p, int unit, int num_items, int share) {
        const int item = unit % num_items;
        split = unit / num_items;
        row = item / KV_HEADS;
        kv_head = item % KV_HEADS;
        position = p.positions[row];
        table = p.tables + row * p.table_width;
        const int length = ceil_div(ceil_div(position, share), CHUNK) * CHUNK;
        num_splits = position ? ceil_div(position, length) : 1;
        begin = split * length;
        end = min(position, begin + length);
    }

    __device__ __forceinline__ u64 slot(const Params& p, int layer, int token) const {
        const u64 page = table[token / PAGE];
        return page * p.page_stride + layer * p.layer_stride + ((token % PAGE) * KV_HEADS + kv_head) * DIM;
    }
};

// What a warp needs to turn a head (norm and rotary embedding), loaded ahead. Lanes hold dimensions lane + 32 i.
struct Turn {
    static constexpr int N = DIM / 32;
    float cos[N], sin[N], weights[N];

    __device__ __forceinline__ Turn(const Params& p, int layer, int position) {
        const int lane = threadIdx.x & 31;
        const u16* norm = (threadIdx.x >> 5 == WARPS - 2 ? p.k_norm : p.q_norm) + layer * DIM;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int d = lane + 32 * i;
            cos[i] = p.cos[(u64)position * DIM + d];
            sin[i] = p.sin[(u64)position * DIM + d];
            weights[i] = HAS_HEAD_NORM ? to_float(norm[d]) : 1;
        }
    }

    // The head of `from`, times `factor` or as the cache will hold it.
    __device__ __forceinline__ void apply(const float* from, double eps, float factor, bool is_cached, float* to) const {
        const int lane = threadIdx.x & 31;
        float values[N], squares = 0;
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = load_shared(from + lane + 32 * i);
        if (HAS_HEAD_NORM) {
#pragma unroll
            for (int i = 0; i < N; i++) squares += values[i] * values[i];
            const float scale = rsqrtf(warp_sum(squares) / DIM + (float)eps);
#pragma unroll
            for (int i = 0; i < N; i++) values[i] *= scale * weights[i];
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float partner = i < N / 2 ? -values[i + N / 2] : values[i - N / 2];
            const float turned = values[i] * cos[i] + partner * sin[i];
            to[lane + 32 * i] = is_cached ? to_float(from_float(turned)) : turned * factor;
        }
    }
};

// Queries of the group, and the new token's key and value, into shared memory; the latter into the cache as well.
__device__ __forceinline__ void prepare_heads(const Params& p, const Place& at, int layer, const Turn& turn, Head& head) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const float* qkv = p.qkv + at.row * QKV;
    const bool is_last = at.split == at.num_splits - 1;
    for (int h = warp; h < GROUP; h += WARPS)
        turn.apply(qkv + (at.kv_head * GROUP + h) * DIM, p.eps, (float)p.scale * LOG2E, false, head.q[h]);
    if (!is_last) return;
    u16* cached = p.cache + at.slot(p, layer, at.position);
    if (warp == WARPS - 2) {
        turn.apply(qkv + (HEADS + at.kv_head) * DIM, p.eps, 1, true, head.key);
        __syncwarp();
        for (int d = lane; d < DIM; d += 32) cached[d] = from_float(head.key[d]);
    }
    if (warp == WARPS - 1) {
        for (int d = lane; d < DIM; d += 32) {
            const u16 value = from_float(load_shared(qkv + (HEADS + KV_HEADS + at.kv_head) * DIM + d));
            head.value[d] = to_float(value);
            cached[p.value_offset + d] = value;
        }
    }
}
