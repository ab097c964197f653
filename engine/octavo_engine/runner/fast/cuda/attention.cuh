// Attention of one new token a row over the paged cache, by units of work (places.cuh). The last split of a row also
// takes the new token, whose key and value it writes to the cache, and merges what the row's other units left.

struct Merged {  // what some tokens give for one dimension of a head
    float highest, weight, value;
};

// Of the warps of this team, of one of the queries that are stored.
__device__ __forceinline__ Merged merge_warps(const Head& head, int stored, int d) {
    float highest = head.highest[0][stored];
#pragma unroll
    for (int w = 1; w < TEAM; w++) highest = fmaxf(highest, head.highest[w][stored]);
    Merged all{highest, 0, 0};
#pragma unroll
    for (int w = 0; w < TEAM; w++) {
        const float factor = exp2_fast(head.highest[w][stored] - highest);
        all.weight += factor * head.weight[w][stored];
        all.value += factor * head.sums[w][stored][d];
    }
    return all;
}

// And of the new token, of head h of the group.
__device__ __forceinline__ Merged merge_new(const Merged& cached, const Head& head, int h, int d) {
    const float highest = fmaxf(cached.highest, head.own[h]);
    const float factor = exp2_fast(cached.highest - highest), own = exp2_fast(head.own[h] - highest);
    return Merged{highest, cached.weight * factor + own, cached.value * factor + own * head.value[d]};
}

// What a row's other units left for a head, some of them at once: a tagged number for each dimension, then the highest
// score and the weight, which the lanes look up for a unit each. `partial` is of this head in the first. Where there
// are fewer units than loads, the last one is looked up again and counts nothing.
struct OtherUnits {
    static constexpr int AT_ONCE = within(1, EQUAL_SPLITS > 1 ? EQUAL_SPLITS - 1 : PARTS - 1, 8);
    Tagged<2> scores{};
    Tagged<AT_ONCE> values{};

    static __device__ __forceinline__ const u64* of_lane(const u64* partial, int num_others) {
        return partial + min((int)threadIdx.x % 32, num_others - 1) * Place::PARTIAL_STRIDE + DIM;
    }

    static __device__ __forceinline__ const u64* of_unit(const u64* partial, int num_others, int d, int i) {
        return partial + min(i, num_others - 1) * Place::PARTIAL_STRIDE + d;
    }

    __device__ __forceinline__ void ask(const u64* partial, int num_others, int d, int begin = 0) {
#pragma unroll
        for (int i = 0; i < 2 && begin == 0; i++) scores.ask(i, of_lane(partial, num_others) + i);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) values.ask(i, of_unit(partial, num_others, d, begin + i));
    }
};

// And of the row's other units, for 32 dimensions a warp; the first of them are asked for.
__device__ __forceinline__ Merged merge_units(
    const Merged& own, OtherUnits& others, const u64* partial, int num_others, int d, u32 tag
) {
    const int lane = threadIdx.x & 31;
    Merged all = own;
    float factor = 0;
#pragma unroll 1
    for (int begin = 0; begin < num_others; begin += OtherUnits::AT_ONCE) {
        if (begin) {
            others.ask(partial, num_others, d, begin);
        } else {
            others.scores.wait(tag, [&](int i) { return OtherUnits::of_lane(partial, num_others) + i; });
            __syncwarp();
            all.highest = fmaxf(own.highest, warp_max(others.scores.value(0)));
            factor = lane < num_others ? exp2_fast(others.scores.value(0) - all.highest) : 0;
            const float shrink = exp2_fast(own.highest - all.highest);
            all.weight = own.weight * shrink + warp_sum(factor * others.scores.value(1));
            all.value = own.value * shrink;
        }
        others.values.wait(tag, [&](int i) { return OtherUnits::of_unit(partial, num_others, d, begin + i); });
        __syncwarp();
#pragma unroll
        for (int i = 0; i < OtherUnits::AT_ONCE; i++)
            all.value += __shfl_sync(~0u, factor, begin + i) * others.values.value(i);
    }
    return all;
}

// Leave what a unit found for one head to the team that has the last.
__device__ __forceinline__ void put_partial(u64* partial, int part, const Merged& found, int d, u32 tag) {
    u64* const to = partial + part * Place::PARTIAL_STRIDE;
    if (d < 2) put_tagged(to + DIM + d, d ? found.weight : found.highest, tag);
    put_tagged(to + d, found.value, tag);
}

// The result of the held heads goes out, or to the team that has the last unit.
__device__ __forceinline__ void finish(
    const Params& p, const Place& at, OtherUnits& others, const Vectors& vectors, int layer, u32 tag, const Head& head,
    int first
) {
    for (int i = threadIdx.x % TEAM_THREADS; i < HELD_HEADS * DIM; i += TEAM_THREADS) {
        const int held = i / DIM, h = first + held, d = i % DIM;
        if (h >= GROUP) continue;
        const Merged cached = merge_warps(head, held, d);
        u64* const partial = Place::partial(p, at.row, at.kv_head, h);
        if (!at.is_last()) {
            put_partial(partial, at.part, cached, d, tag);
            continue;
        }
        const Merged own = merge_new(cached, head, h, d);
        const bool are_asked = IS_QUEUED && i < TEAM_THREADS && at.begin < at.end;
        if (at.merges() && !are_asked) others.ask(partial, at.num_others, d);
        const Merged all = at.merges() ? merge_units(own, others, partial, at.num_others, d, tag) : own;
        const float value = __fdividef(all.value, all.weight), next = __shfl_down_sync(~0u, value, 1);
        if (d % 2 == 0)
            vectors.put(Vectors::place<V_ATTENDED>(layer, at.row, (at.kv_head * GROUP + h) * DIM + d),
                        from_floats(value, next));
    }
}

// One unit of a row's own tokens.
__device__ __forceinline__ void attend(
    const Params& p, const Place at, Chunks& chunks, const Vectors& vectors, int layer, u32 tag, Head& head
) {
    const int warp = warp_of_team(), lane = threadIdx.x & 31;
    Loaded<BATCH> loaded{};  // the first are, before the projection is there
    if (!IS_QUEUED) loaded.load(p, at, layer, 0);
    Turn turn;
    turn.load(p, layer, at.position, warp == KEY_WARP);
    if (IS_QUEUED && at.begin < at.end) loaded.take(chunks, at.end - at.begin);
    sync_team();  // what was in shared memory is used
    prepare_heads(p, at, layer, tag, turn, head);
    sync_team();
    spent(C_HEADS);
    if (at.is_last())
        for (int h = warp; h < GROUP; h += TEAM) {
            float sum = 0;
            for (int d = lane; d < DIM; d += 32) sum += head.q[h][d] * head.key[d];
            sum = warp_sum(sum);
            if (lane == 0) head.own[h] = sum;
        }
    for (int first = 0; first < GROUP; first += HELD_HEADS) {
        float q[HELD_HEADS][8];
        take_queries(q, head, first, GROUP - 1);
        Sums<HELD_HEADS> own;
        own.clear();
        OtherUnits others;
        if (first) loaded.load(p, at, layer, 0);
        own.add_all(p, at, layer, chunks, loaded, q, [&] {
            const int i = threadIdx.x % TEAM_THREADS, h = min(i / DIM, GROUP - 1);
            if (at.merges()) others.ask(Place::partial(p, at.row, at.kv_head, h), at.num_others, i % DIM);
        });
        if (IS_QUEUED && chunks.taken == chunks.own) chunks.pass_others();  // whom this team may have to wait for
        spent(C_CACHED);
        own.merge_lanes();
        if (first) sync_team();  // the sums of the heads before are used
        own.store<0>(head);
        sync_team();
        finish(p, at, others, vectors, layer, tag, head, first);
        spent(C_MERGE);
    }
}

// Some queries' sums are in shared memory: leave them to the teams that have their rows' last units.
__device__ __forceinline__ void leave_sums(const Params& p, const Place& at, u32 tag, const Head& head, int first) {
    for (int i = threadIdx.x % TEAM_THREADS; i < STORED * DIM; i += TEAM_THREADS) {
        const int stored = i / DIM, query = first + stored, d = i % DIM;
        if (query >= at.num_queries) continue;
        u64* const partial = Place::partial(p, at.row_of(query), at.kv_head, at.head_of(query));
        put_partial(partial, at.part, merge_warps(head, stored, d), d, tag);
    }
}

// One unit of the lead of several rows.
__device__ __forceinline__ void attend_lead(
    const Params& p, const Place at, Chunks& chunks, int layer, u32 tag, Head& head
) {
    Tile keys{}, values{};
    if (!IS_QUEUED) {
        keys.load(p, at, layer, warp_of_team(), 0);
        values.load(p, at, layer, warp_of_team(), p.value_offset);
    }
    sync_team();  // what was in shared memory is used
    prepare_queries(p, at, layer, tag, head, [&] {
        if (IS_QUEUED) take_tiles(chunks, keys, values);
    });
    sync_team();
    spent(C_HEADS);
    LeadSums sums;
    sums.clear();
    sums.add_all(p, at, layer, chunks, keys, values, LeadQueries(head));
    sums.merge_lanes();
#pragma unroll 1
    for (int first = 0; first < at.num_queries; first += STORED) {
        if (first) sync_team();  // those before are used
        sums.store(head, first);
        sync_team();
        leave_sums(p, at, tag, head, first);
    }
}

// All units of this team; cached keys and values of the first are under way before the projection is there.
__device__ __forceinline__ void attention(
    const Params& p, Queue& queue, const Vectors& vectors, int layer, u32 tag, const Places (&all)[TEAMS], Head* heads
) {
    Head& head = heads[team()];
    const Places& places = all[team()];
    Chunks chunks{queue};
    if (TEAMS > 1) sync_workers();  // the sums of products, in the same memory, are used
    const int num_leads = HAS_LEADS ? places.num_leads : 0;
    if (IS_QUEUED) chunks.begin(all, true);
#pragma unroll 1
    for (int i = 0; i < num_leads; i++) {
        attend_lead(p, places.all[i], chunks, layer, tag, head);
        spent(C_LEADS);
    }
    if (IS_QUEUED) {
        chunks.pass_others();
        chunks.begin(all, false);
    }
#pragma unroll 1
    for (int i = num_leads; i < num_leads + MOST_OWN; i++)
        if (places.all[i].is_there()) attend(p, places.all[i], chunks, vectors, layer, tag, head);
    if (IS_QUEUED) chunks.pass_others();
}
