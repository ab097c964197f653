// The first half of attention: the heads of the new token on their way from the projection into shared memory and the
// cache. See attention.cuh for the whole.

constexpr int QUERY_PITCH = DIM + 4;  // so that the queries of a lead do not all lie in the same banks
constexpr int STORED = HELD_HEADS > 2 ? HELD_HEADS : 2;  // whose sums the warps of a team show each other at a time

struct __align__(16) Head {  // of one team, in shared memory
    union {
        float q[GROUP][DIM];                                  // of a row, or
        u16 lead[HAS_LEADS ? LEAD_QUERIES : 1][QUERY_PITCH];  // of several, as factors of products
    };
    float key[DIM], value[DIM];
    float own[GROUP];  // scores of the new token
    float highest[TEAM][STORED], weight[TEAM][STORED];
    float sums[TEAM][STORED][DIM];
};
static_assert(TEAMS * sizeof(Head) <= SUMS_BYTES, "they lie where the sums of products are at other times");

// What a warp needs to turn a head (norm and rotary embedding), loaded ahead. Lanes hold dimensions lane + 32 i.
struct Turn {
    static constexpr int N = DIM / 32;
    float cos[N], sin[N], weights[N];
    Tagged<N> numbers;

    __device__ __forceinline__ void load(const Params& p, int layer, int position, bool is_key) {
        const int lane = threadIdx.x & 31;
        const u16* norm = (is_key ? p.k_norm : p.q_norm) + layer * DIM;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int d = lane + 32 * i;
            cos[i] = p.cos[(u64)position * DIM + d];
            sin[i] = p.sin[(u64)position * DIM + d];
            weights[i] = HAS_HEAD_NORM ? to_float(norm[d]) : 1;
        }
    }

    // The numbers of one head, which the projection leaves there.
    __device__ __forceinline__ void ask(const u64* from) {
#pragma unroll
        for (int i = 0; i < N; i++) numbers.ask(i, from + threadIdx.x % 32 + 32 * i);
    }

    // Those that were asked for.
    __device__ __forceinline__ void wait(const u64* from, u32 tag) {
        numbers.wait(tag, [&](int i) { return from + threadIdx.x % 32 + 32 * i; });
        __syncwarp();
    }

    __device__ __forceinline__ void ask_and_wait(const u64* from, u32 tag) {
        ask(from);
        wait(from, tag);
    }

    // `use(dimension, number)` for all numbers of the head, turned, that this lane has.
    template <typename Use>
    __device__ __forceinline__ void apply(double eps, Use use) const {
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
            use(lane + 32 * i, values[i] * cos[i] + partner * sin[i]);
        }
    }
};

// A number of a query as it meets all keys. Rounded for those of a lead alone, it would shift their scores beside the
// others' where keys have much in common.
__device__ __forceinline__ u16 as_factor(const Params& p, float number) {
    return from_float(number * (float)p.scale * LOG2E);
}

constexpr int KEY_WARP = TEAM - 2, VALUE_WARP = TEAM - 1;  // of a team; the others turn queries

// Queries of a row, and the new token's key and value, into shared memory; the latter into the cache as well.
__device__ __forceinline__ void prepare_heads(
    const Params& p, const Place& at, int layer, u32 tag, Turn& turn, Head& head
) {
    const int lane = threadIdx.x & 31, warp = warp_of_team();
    const u64* qkv = p.qkv + at.row * QKV;
    u16* cached = at.is_last() ? p.cache + at.slot(p, layer, at.position) : nullptr;
    if (warp == VALUE_WARP && at.is_last()) {
        turn.ask_and_wait(qkv + (HEADS + KV_HEADS + at.kv_head) * DIM, tag);
        for (int i = 0; i < Turn::N; i++) {
            const u16 value = from_float(turn.numbers.value(i));
            head.value[lane + 32 * i] = to_float(value);
            cached[p.value_offset + lane + 32 * i] = value;
        }
    }
    if (warp == KEY_WARP && at.is_last()) {
        turn.ask_and_wait(qkv + (HEADS + at.kv_head) * DIM, tag);
        turn.apply(p.eps, [&](int d, float number) {
            cached[d] = from_float(number);
            head.key[d] = to_float(from_float(number));
        });
    }
    if (warp >= KEY_WARP) return;
    for (int h = warp; h < GROUP; h += KEY_WARP) {
        turn.ask_and_wait(qkv + (at.kv_head * GROUP + h) * DIM, tag);
        turn.apply(p.eps, [&](int d, float number) { head.q[h][d] = to_float(as_factor(p, number)); });
    }
}

// Queries of several rows. Where there are fewer than a unit may have, the last is there again and counts nothing.
// `meanwhile` is called when they are asked for.
template <typename Meanwhile>
__device__ __forceinline__ void prepare_queries(
    const Params& p, const Place& at, int layer, u32 tag, Head& head, Meanwhile meanwhile
) {
    constexpr int N = LEAD_QUERIES / TEAM;
    const auto own = [&](int i) { return min((int)warp_of_team() + i * TEAM, at.num_queries - 1); };
    const auto from = [&](int i) {
        return p.qkv + at.row_of(own(i)) * QKV + (at.kv_head * GROUP + at.head_of(own(i))) * DIM;
    };
    Turn turns[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        turns[i].load(p, layer, p.positions[at.row_of(own(i))], false);
        turns[i].ask(from(i));
    }
    meanwhile();
#pragma unroll
    for (int i = 0; i < N; i++) {
        turns[i].wait(from(i), tag);
        u16* const to = head.lead[warp_of_team() + i * TEAM];
        turns[i].apply(p.eps, [&](int d, float number) { to[d] = as_factor(p, number); });
    }
}
