// Who works on what in attention. A unit of work is a run of cached tokens of one KV head, and the queries that meet
// them. It is a split of a row's own tokens with that row's queries; or, where rows begin with the same blocks, a split
// of this lead with up to four queries of these rows, so that its keys and values come once for all four.
//
// A team of warps takes one unit at a time. It has its units of leads first, which wait for nobody but the projection:
// of a row's own splits, the last merges what all others and the lead's left.

constexpr int MAX_SPLITS = 16, MAX_LEAD_SPLITS = 8;
constexpr int LANES = DIM / 8;                // that share a token
constexpr int TOKENS = 32 / LANES;            // a warp takes at once
constexpr int HELD_HEADS = GROUP < 4 ? GROUP : 4, LEAD_QUERIES = 4;  // in registers
constexpr int BATCH = HELD_HEADS == 1 ? 8 : 4, LEAD_BATCH = 4;  // times TOKENS a warp has under way
constexpr int ITEMS = ROWS * KV_HEADS;
constexpr int TEAM = ITEMS > PROGRAMS ? WARPS / 2 : WARPS;  // two units at once, if a block has so many
constexpr int TEAMS = WARPS / TEAM, ALL_TEAMS = TEAMS * PROGRAMS, TEAM_THREADS = 32 * TEAM;
constexpr int STRIDE = TOKENS * TEAM;
constexpr int CHUNK = BATCH * STRIDE, LEAD_CHUNK = LEAD_BATCH * STRIDE;  // of which a split is a multiple, in tokens
static_assert(PAGE % CHUNK == 0 && PAGE % LEAD_CHUNK == 0, "what a team takes at once lies in one page");

constexpr int within(int least, int value, int most) { return value < least ? least : value < most ? value : most; }

constexpr int SHARE = within(1, ALL_TEAMS / ITEMS, MAX_SPLITS);  // most splits of an item
constexpr bool HAS_LEADS = ROWS > 1 && GROUP < LEAD_QUERIES;  // else a row's own queries fill a unit
constexpr int QUADS = ceil_div(ROWS * GROUP, LEAD_QUERIES);
constexpr int LEAD_SPLITS = HAS_LEADS ? within(1, ALL_TEAMS / (KV_HEADS * QUADS), MAX_LEAD_SPLITS) : 0;
constexpr int PARTS = LEAD_SPLITS + SHARE;  // most units that a row's item is made of
constexpr int MOST_LEADS = HAS_LEADS ? ceil_div(KV_HEADS * LEAD_SPLITS * (QUADS + ROWS / 2), ALL_TEAMS) : 0;
constexpr int MOST_PLACES = MOST_LEADS + ceil_div(ITEMS * SHARE, ALL_TEAMS);  // units of a team

__device__ __forceinline__ int team() { return threadIdx.x / TEAM_THREADS; }
__device__ __forceinline__ int warp_of_team() { return threadIdx.x % TEAM_THREADS / 32; }

__device__ __forceinline__ void sync_team() {
    __syncwarp();
    sync_some<TEAM_THREADS>(1 + (TEAMS > 1) + team());
}

struct Place {  // of one unit of work
    const int* table;
    u64 slot_of_first;  // token, in layer 0
    int row, kv_head, begin, end;
    int part, num_others;  // its number among the units of the item, and how many there are but for the last
    int position;          // of a row's own unit
    int query, num_queries;  // of a lead's: the first, counted from the first head of `row`, which is the group's first

    __device__ __forceinline__ bool is_there() const { return num_queries > 0; }

    // This one also takes the new token, and merges the others.
    __device__ __forceinline__ bool is_last() const { return part == num_others; }

    __device__ __forceinline__ int row_of(int i) const { return row + (query + i) / GROUP; }
    __device__ __forceinline__ int head_of(int i) const { return (query + i) % GROUP; }

    // A split of a row's own tokens: those that follow its lead.
    __device__ void find_own(const Params& p, int unit) {
        const int item = unit % ITEMS, split = unit / ITEMS;
        row = item / KV_HEADS;
        kv_head = item % KV_HEADS;
        position = p.positions[row];
        table = p.tables + row * p.table_width;
        const int lead = HAS_LEADS ? p.leads[row] : 0, left = position - lead;
        const int length = ceil_div(ceil_div(left, SHARE), CHUNK) * CHUNK, num_splits = left ? ceil_div(left, length) : 1;
        const int num_before = lead ? num_lead_splits(lead) : 0;
        query = 0;
        num_queries = split < num_splits ? GROUP : 0;
        part = num_before + split;
        num_others = num_before + num_splits - 1;
        span(p, lead + split * length, min(position, lead + split * length + length));
    }

    // A split of the lead of some group, if there are so many.
    __device__ void find_lead(const Params& p, int unit) {
        num_queries = 0;
#pragma unroll 1
        for (row = 0; row < ROWS; row++) {
            int count = 0;
#pragma unroll 1
            for (int i = row; i < ROWS; i++) count += p.leads[i] && p.leads[ROWS + i] == row;
            const int lead = p.leads[row];
            const int num_units = count ? KV_HEADS * quads_of(count) * num_lead_splits(lead) : 0;
            if (unit < num_units) return find_lead_of(p, unit, lead, count);
            unit -= num_units;
        }
    }

    __device__ void find_lead_of(const Params& p, int unit, int lead, int count) {
        const int split = unit / KV_HEADS / quads_of(count), length = lead_length(lead);
        kv_head = unit % KV_HEADS;
        query = unit / KV_HEADS % quads_of(count) * LEAD_QUERIES;
        num_queries = min(LEAD_QUERIES, count * GROUP - query);
        part = split;
        num_others = PARTS;  // it is never the last
        table = p.tables + row * p.table_width;
        span(p, split * length, min(lead, split * length + length));
    }

    static __device__ __forceinline__ int quads_of(int count) { return ceil_div(count * GROUP, LEAD_QUERIES); }

    static __device__ __forceinline__ int lead_length(int lead) {
        return ceil_div(ceil_div(lead, LEAD_SPLITS > 0 ? LEAD_SPLITS : 1), LEAD_CHUNK) * LEAD_CHUNK;
    }

    static __device__ __forceinline__ int num_lead_splits(int lead) { return ceil_div(lead, lead_length(lead)); }

    __device__ __forceinline__ void span(const Params& p, int first, int past) {
        begin = first;
        end = past;
        slot_of_first = begin < end ? slot(p, 0, begin) : 0;
    }

    __device__ __forceinline__ u64 slot(const Params& p, int layer, u32 token) const {
        const u64 page = __ldg(table + token / PAGE);
        return page * p.page_stride + layer * p.layer_stride + ((token % PAGE) * KV_HEADS + kv_head) * DIM;
    }

    // Where the first unit of an item leaves what it found for a head; that of the next unit is so far away.
    static __device__ __forceinline__ u64* partial(const Params& p, int row, int kv_head, int h) {
        return p.partial + ((row * KV_HEADS + kv_head) * PARTS * GROUP + h) * (DIM + 2);
    }
    static constexpr int PARTIAL_STRIDE = GROUP * (DIM + 2);
};

// All units of a team, in shared memory, leads first.
struct Places {
    Place all[MOST_PLACES];
    int num_leads;

    __device__ void find(const Params& p, int team_of_block) {
        const int own = blockIdx.x + PROGRAMS * team_of_block;
        num_leads = 0;
        if (HAS_LEADS)
#pragma unroll 1
            for (int unit = ALL_TEAMS - 1 - own; num_leads < MOST_LEADS; unit += ALL_TEAMS) {  // the idle come first
                all[num_leads].find_lead(p, unit);
                if (!all[num_leads].is_there()) break;
                num_leads++;
            }
#pragma unroll 1
        for (int i = 0; i < MOST_PLACES - MOST_LEADS; i++) {
            const int unit = own + i * ALL_TEAMS;
            all[num_leads + i].num_queries = 0;
            if (unit < ITEMS * SHARE) all[num_leads + i].find_own(p, unit);
        }
    }
};
