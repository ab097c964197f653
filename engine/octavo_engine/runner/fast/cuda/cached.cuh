// The way of cached keys and values where a block has two teams, and heads of few queries: through the queue, between
// the weights of QKV and those of attention's output. So memory is busy while attention waits for its queries, and
// again as soon as it ends.
//
// A stage holds the keys of one chunk of a unit and behind them its values. Chunks of leads come first, since no team
// waits for another before it has left what it found in its leads; and as long as both teams have some, they take
// turns. Each warp takes the stages that are its own and passes all others.

constexpr int CHUNK_BYTES = CHUNK * DIM * 2;
constexpr int BOXES = CHUNK / BOX;  // copies of BOX tokens that bring keys, as many as bring values
static_assert(!IS_QUEUED || (2 * CHUNK_BYTES <= STAGE && LEAD_CHUNK % CHUNK == 0), "a chunk has a stage");
static_assert(STAGE % 128 == 0 && CHUNK_BYTES % 128 == 0 && BOX * DIM * 2 % 128 == 0, "where copies of boxes go");

// All chunks of some units of a team in turn.
struct Cursor {
    int unit, past;  // the unit behind the last
    int done;        // tokens of the unit

    __device__ __forceinline__ bool is_there(const Places& places) {
        while (unit < past && done >= places.all[unit].end - places.all[unit].begin) {
            unit++;
            done = 0;
        }
        return unit < past;
    }

    // Bring one, up to a whole box, of which the last tokens may be none of the unit.
    __device__ __forceinline__ void put(const Params& p, Queue& queue, const Place& at, int layer) {
        const int lane = threadIdx.x & 31, begin = at.begin + done, count = min(ceil_div(at.end - begin, BOX), BOXES);
        const int box = lane % BOXES, of_values = lane / BOXES, page = __ldg(at.table + begin / PAGE);
        queue.put(count * (2 * BOX * DIM * 2), of_values < 2 && box < count, [&](u32 stage, u32 barrier) {
            const u32 to = stage + of_values * CHUNK_BYTES + box * (BOX * DIM * 2);
            copy_box(to, p.cached, at.kv_head, begin % PAGE + box * BOX, 2 * layer + of_values, page, barrier);
        });
        done += CHUNK;
    }
};

// Bring what the teams of this block read in one layer, of leads or of rows' own.
__device__ __forceinline__ void feed_chunks(
    const Params& p, Queue& queue, const Places (&places)[TEAMS], int layer, bool of_leads
) {
    Cursor cursors[TEAMS];
#pragma unroll
    for (int i = 0; i < TEAMS; i++) {
        const int num_leads = places[i].num_leads;
        cursors[i] = of_leads ? Cursor{0, num_leads, 0} : Cursor{num_leads, num_leads + MOST_OWN, 0};
    }
    bool are_more = true;
#pragma unroll 1
    while (are_more) {
        are_more = false;
#pragma unroll
        for (int i = 0; i < TEAMS; i++) {
            if (!cursors[i].is_there(places[i])) continue;
            cursors[i].put(p, queue, places[i].all[cursors[i].unit], layer);
            are_more = true;
        }
    }
}

__device__ __forceinline__ void feed_cached(const Params& p, Queue& queue, const Places (&places)[TEAMS], int layer) {
    __syncwarp();
    if (layer == 0) sync_some<32 * (TEAMS + 1)>(FOUND);
#pragma unroll 1
    for (int of_leads = HAS_LEADS; of_leads >= 0; of_leads--) feed_chunks(p, queue, places, layer, of_leads);
}

// This team's chunks, of leads or of rows' own units, among those of the other team.
struct Chunks {
    Queue& queue;
    int own, others, taken, passed;

    __device__ __forceinline__ void begin(const Places* places, bool of_leads) {
        own = places[team()].num_chunks[of_leads];
        others = places[TEAMS - 1 - team()].num_chunks[of_leads];
        taken = passed = 0;
    }

    // Those of the other team that come before this team's next one, or the last ones.
    __device__ __forceinline__ void pass_others() {
        const int before = taken < own ? min(taken + team(), others) : others;
#pragma unroll 1
        for (; passed < before; passed++) queue.pass();
    }

    // Where this team's next one lies, when it is there; it has to be given back.
    __device__ __forceinline__ u32 take() {
        pass_others();
        taken++;
        return queue.wait();
    }
};
