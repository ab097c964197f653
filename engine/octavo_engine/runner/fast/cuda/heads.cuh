// The first half of attention: what a block works on, and the heads of the new token on their way from the projection
// into shared memory and the cache. See attention.cuh for the whole.

constexpr int MAX_SPLITS = 16;
constexpr int LANES = DIM / 8;                // that share a token
constexpr int TOKENS = 32 / LANES;            // a warp takes at once
constexpr int HELD_HEADS = GROUP < 4 ? GROUP : 4;
constexpr int BATCH = HELD_HEADS == 1 ? 8 : 4; // times TOKENS a warp has under way: what the registers hold
constexpr int STRIDE = TOKENS * WARPS, CHUNK = BATCH * STRIDE;  // a split is a multiple of CHUNK tokens
constexpr int ITEMS = ROWS * KV_HEADS;
constexpr int SHARE =  // most splits of an item
    PROGRAMS / ITEMS < 1 ? 1 : PROGRAMS / ITEMS < MAX_SPLITS ? PROGRAMS / ITEMS : MAX_SPLITS;
static_assert(PAGE % CHUNK == 0, "what a block takes at once lies in one page");
constexpr float NEVER = -1e30f;

struct Head {  // in shared memory
    float q[GROUP][DIM];
    float key[DIM], value[DIM];
    float own[GROUP];                         // scores of the new token
    float highest[WARPS][HELD_HEADS], weight[WARPS][HELD_HEADS];
};

struct Place {  // of one unit of work
    const int* table;
    u64 slot_of_first;  // token, in layer 0
    int row, kv_head, split, num_splits, position, begin, end;

    __device__ void find(const Params& p, int unit) {
        const int item = unit % ITEMS;
        split = unit / ITEMS;
        row = item / KV_HEADS;
        kv_head = item % KV_HEADS;
        position = p.positions[row];
        table = p.tables + row * p.table_width;
        const int length = ceil_div(ceil_div(position, SHARE), CHUNK) * CHUNK;
        num_splits = position ? ceil_div(position, length) : 1;
        begin = split * length;
        end = min(position, begin + length);
        slot_of_first = begin < end ? slot(p, 0, begin) : 0;
    }

    // The last split also takes the new token, and merges the others.
    __device__ __forceinline__ bool is_last() const { return split == num_splits - 1; }

    __device__ __forceinline__ u64 slot(const Params& p, int layer, u32 token) const {
        const u64 page = __ldg(table + token / PAGE);
        return page * p.page_stride + layer * p.layer_stride + ((token % PAGE) * KV_HEADS + kv_head) * DIM;
    }

    // Of one head of this item in split 0; the next split's is so far away.
    __device__ __forceinline__ u64* partial(const Params& p, int h) const {
        return p.partial + ((row * KV_HEADS + kv_head) * SHARE * GROUP + h) * (DIM + 2);
    }
    static constexpr int PARTIAL_STRIDE = GROUP * (DIM + 2);
};

// What a warp needs to turn a head (norm and rotary embedding), loaded ahead. Lanes hold dimensions lane + 32 i.
struct Turn {
    static constexpr int N = DIM / 32;
    float cos[N], sin[N], weights[N];
    Tagged<N> numbers;

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

    // The numbers of one head, as the projection left them, when they are there.
    __device__ __forceinline__ void wait(const u64* from, u32 tag) {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < N; i++) numbers.ask(i, from + lane + 32 * i);
        numbers.wait(tag, [&](int i) { return from + lane + 32 * i; });
        __syncwarp();
    }

    // The head, turned, times `factor` or as the cache will hold it.
    __device__ __forceinline__ void apply(double eps, float factor, bool is_cached, float* to) const {
        const int lane = threadIdx.x & 31;
        float values[N], squares = 0;
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = numbers.value(i);
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
__device__ __forceinline__ void prepare_heads(
    const Params& p, const Place& at, int layer, u32 tag, Turn& turn, Head& head
) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u64* qkv = p.qkv + at.row * QKV;
    u16* cached = at.is_last() ? p.cache + at.slot(p, layer, at.position) : nullptr;
    if (warp == WARPS - 1 && at.is_last()) {
        turn.wait(qkv + (HEADS + KV_HEADS + at.kv_head) * DIM, tag);
        for (int i = 0; i < Turn::N; i++) {
            const u16 value = from_float(turn.numbers.value(i));
            head.value[lane + 32 * i] = to_float(value);
            cached[p.value_offset + lane + 32 * i] = value;
        }
    }
    if (warp == WARPS - 2 && at.is_last()) {
        turn.wait(qkv + (HEADS + at.kv_head) * DIM, tag);
        turn.apply(p.eps, 1, true, head.key);
        __syncwarp();
        for (int d = lane; d < DIM; d += 32) cached[d] = from_float(head.key[d]);
    }
    if (warp >= WARPS - 2) return;
    for (int h = warp; h < GROUP; h += WARPS - 2) {
        turn.wait(qkv + (at.kv_head * GROUP + h) * DIM, tag);
        turn.apply(p.eps, (float)p.scale * LOG2E, false, head.q[h]);
    }
}
