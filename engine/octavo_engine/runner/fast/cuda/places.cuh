// Who works on what in attention. A unit of work is a run of cached tokens of one KV head, and the queries that meet
// them. It is a split of a row's own tokens with that row's queries; or, where rows begin with the same blocks, a split
// of this lead with up to eight queries of these rows, so that its keys and values come once for all.
//
// A team of warps takes one unit at a time. It has its units of leads first, which wait for nobody but the projection:
// of a row's own splits, the last merges what all others and the lead's left. Splits are equally long for all rows, so
// that a long row among short ones has most of the teams.

constexpr int MAX_SPLITS = 16, MAX_LEAD_SPLITS = 8;
constexpr int LANES = DIM / 8;                // that share a token
constexpr int TOKENS = 32 / LANES;            // a warp takes at once
constexpr int MOST_HELD = 4, HELD_HEADS = GROUP < MOST_HELD ? GROUP : MOST_HELD;  // in registers
constexpr int TILE = 16, LEAD_QUERIES = 8;      // tokens of a lead that a warp takes at once, and for how many queries
constexpr int ITEMS = ROWS * KV_HEADS;
constexpr int TEAM = ITEMS > PROGRAMS ? WARPS / 2 : WARPS;  // two units at once, if a block has so many
constexpr int TEAMS = WARPS / TEAM, ALL_TEAMS = TEAMS * PROGRAMS, TEAM_THREADS = 32 * TEAM;
constexpr int STRIDE = TOKENS * TEAM;
constexpr bool IS_QUEUED = TEAMS == 2 && GROUP <= MOST_HELD;       // cached keys and values come as weights do
constexpr int BATCH = HELD_HEADS == 1 && !IS_QUEUED ? 8 : 4;       // times TOKENS a warp takes at once
constexpr int CHUNK = BATCH * STRIDE, LEAD_CHUNK = TILE * TEAM;  // of which a split is a multiple, in tokens

constexpr int within(int least, int value, int most) { return value < least ? least : value < most ? value : most; }

constexpr int UNITS = ALL_TEAMS / KV_HEADS;  // of one KV head, that the teams take all at once
constexpr bool IS_SPLIT = ROWS < UNITS;      // else a team has several rows, each whole
constexpr int MOST_SPLITS = IS_SPLIT ? within(1, UNITS, MAX_SPLITS) : 1;      // of a row
constexpr int EQUAL_SPLITS = IS_SPLIT ? within(1, UNITS / ROWS, MAX_SPLITS) : 1;  // where all rows are as long
constexpr bool HAS_LEADS = ROWS > 1 && GROUP < MOST_HELD;  // else a row's own queries fill a unit
constexpr int OCTETS = ceil_div(ROWS * GROUP, LEAD_QUERIES);
constexpr int LEAD_SPLITS = HAS_LEADS ? within(1, ALL_TEAMS / (KV_HEADS * OCTETS), MAX_LEAD_SPLITS) : 0;
constexpr int PARTS = LEAD_SPLITS + MOST_SPLITS;  // most units that a row's item is made of
constexpr int MOST_LEADS = HAS_LEADS ? ceil_div(KV_HEADS * LEAD_SPLITS * (OCTETS + ROWS / 2), ALL_TEAMS) : 0;
constexpr int MOST_OWN = IS_SPLIT ? 1 : ceil_div(ITEMS, ALL_TEAMS), MOST_PLACES = MOST_LEADS + MOST_OWN;  // of a team

static_assert(PAGE % CHUNK == 0 && (!HAS_LEADS || PAGE % LEAD_CHUNK == 0), "what a team takes at once lies in one page");

__device__ __forceinline__ int team() { return threadIdx.x / TEAM_THREADS; }
__device__ __forceinline__ int warp_of_team() { return threadIdx.x % TEAM_THREADS / 32; }

__device__ __forceinline__ void sync_team() {
    __syncwarp();
    sync_some<TEAM_THREADS>(WORKING + (TEAMS > 1) + team());
}

// Of each lane its row's tokens, if it has a row; a whole warp's work.
struct RowOfLane {
    int lead, left, num_splits;  // left: cached tokens behind the lead
    int edge;                    // units of this row and of those before it
    int length;                  // of all splits but a row's last

    __device__ __forceinline__ explicit RowOfLane(const Params& p) {
        const int lane = threadIdx.x & 31;
        lead = HAS_LEADS && lane < ROWS ? p.leads[lane] : 0;
        left = lane < ROWS ? p.positions[lane] - lead : 0;
        length = IS_SPLIT ? fitting_length() : 1 << 30;
        num_splits = lane < ROWS ? splits() : 0;
        edge = num_splits * KV_HEADS;
#pragma unroll
        for (int offset = 1; offset < ROWS; offset <<= 1) {
            const int before = __shfl_up_sync(~0u, edge, offset);
            if (lane >= offset) edge += before;
        }
    }

    __device__ __forceinline__ int splits() const { return max(1, ceil_div(left, length)); }

    // About the shortest with which there are no more splits than teams for them.
    __device__ __forceinline__ int fitting_length() {
        const int all = __reduce_add_sync(~0u, left), longest = __reduce_max_sync(~0u, left);
        const int least = max(ceil_div(all, UNITS > 0 ? UNITS : 1), ceil_div(longest, MAX_SPLITS));
        length = max(1, ceil_div(least, CHUNK)) * CHUNK;
        while (__reduce_add_sync(~0u, (threadIdx.x & 31) < ROWS ? splits() : 0) > UNITS)
            length += ceil_div(length, 16 * CHUNK) * CHUNK;
        return length;
    }
};

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

    __device__ __forceinline__ bool merges() const { return PARTS > 1 && num_others && is_last(); }

    __device__ __forceinline__ int row_of(int i) const { return row + (query + i) / GROUP; }
    __device__ __forceinline__ int head_of(int i) const { return (query + i) % GROUP; }

    // A split of a row's own tokens, those that follow its lead, if there are so many; a whole warp's work.
    __device__ __forceinline__ void find_own(const Params& p, const RowOfLane& rows, int unit) {
        row = __reduce_add_sync(~0u, (threadIdx.x & 31) < ROWS && rows.edge <= unit);
        const int lead = __shfl_sync(~0u, rows.lead, row), num_splits = __shfl_sync(~0u, rows.num_splits, row);
        const int past = lead + __shfl_sync(~0u, rows.left, row), edge = __shfl_sync(~0u, rows.edge, row);
        query = num_queries = begin = end = 0;
        if (row == ROWS) return;
        const int of_row = unit - (edge - num_splits * KV_HEADS), split = of_row / KV_HEADS;
        const int num_before = lead ? num_lead_splits(lead) : 0;
        kv_head = of_row % KV_HEADS;
        position = past;
        table = p.tables + row * p.table_width;
        num_queries = GROUP;
        part = num_before + split;
        num_others = num_before + num_splits - 1;
        const int first = lead + (split ? split * rows.length : 0);
        span(p, first, split < num_splits - 1 ? first + rows.length : past);
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
            const int num_units = count ? KV_HEADS * octets_of(count) * num_lead_splits(lead) : 0;
            if (unit < num_units) return find_lead_of(p, unit, lead, count);
            unit -= num_units;
        }
    }

    __device__ void find_lead_of(const Params& p, int unit, int lead, int count) {
        const int split = unit / KV_HEADS / octets_of(count), length = lead_length(lead);
        kv_head = unit % KV_HEADS;
        query = unit / KV_HEADS % octets_of(count) * LEAD_QUERIES;
        num_queries = min(LEAD_QUERIES, count * GROUP - query);
        part = split;
        num_others = PARTS;  // it is never the last
        table = p.tables + row * p.table_width;
        span(p, split * length, min(lead, split * length + length));
    }

    static __device__ __forceinline__ int octets_of(int count) { return ceil_div(count * GROUP, LEAD_QUERIES); }

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
    int num_chunks[2];  // of a row's own units, and of leads

    // A whole warp's work; a function of its own, which leaves the registers of all else alone.
    __device__ __noinline__ void find(const Params& p, int team_of_block) {
        const int own = blockIdx.x + PROGRAMS * team_of_block, lane = threadIdx.x & 31;
        const RowOfLane rows(p);
        Place place;
        int count = 0, num_own = 0, num_shared = 0;
        if (HAS_LEADS)
#pragma unroll 1
            for (int unit = ALL_TEAMS - 1 - own; count < MOST_LEADS; unit += ALL_TEAMS) {  // the idle come first
                place.find_lead(p, unit);
                if (!place.is_there()) break;
                if (lane == 0) all[count] = place;
                num_shared += (place.end - place.begin) / CHUNK;
                count++;
            }
#pragma unroll 1
        for (int i = 0; i < MOST_OWN; i++) {
            place.find_own(p, rows, own + i * ALL_TEAMS);
            if (lane == 0) all[count + i] = place;
            num_own += ceil_div(place.end - place.begin, CHUNK);
        }
        if (lane) return;
        num_leads = count;
        num_chunks[0] = num_own;
        num_chunks[1] = num_shared;
    }
};
