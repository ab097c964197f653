// What the attention of many rows shares (see ragged.cu): its constants, and which tokens of which rows a block takes.
//
// The compiler is given HEADS, KV_HEADS, DIM, PAGE and TEAM: the warps of a block, which take the same tokens for KV
// heads side by side and never wait for each other. An item is a row and a KV head. Tiles of TILE tokens lie in one
// line, row by row, and in a row team by team; each block takes a run of it, as long as any other.

constexpr int GROUP = HEADS / KV_HEADS, PAIRS = (GROUP + 1) / 2;  // queries of a KV head
constexpr int TEAMS = KV_HEADS / TEAM;                            // of a row
constexpr int TILE = 16;
constexpr int LEAST = 4;                                // tiles of a block; fewer cost more to merge than to read
constexpr int MOST_PARTS = 64;                          // about, of an item, which one warp merges
constexpr int MAX_ROWS = 256, ROWS_OF_LANE = MAX_ROWS / 32;
constexpr int STEPS = DIM / 16;                         // products of a tile; also copies of a lane
constexpr int LANES = DIM / 8, TOKENS = 32 / LANES;     // lanes that copy a token, tokens that a warp copies at once
constexpr int AHEAD = 256 / DIM;                        // tiles under way, keys and values
constexpr int SLOTS = 2 * AHEAD + 1, SLOT_BYTES = TILE * DIM * 2;
constexpr int PART = (STEPS + 1) * 8 * PAIRS * 4;       // numbers
constexpr float LN2 = 0.69314718f;
static_assert(PAGE % TILE == 0, "a tile lies in one page");
static_assert(GROUP <= 8 && KV_HEADS % TEAM == 0);

struct Params {  // 8 bytes a field, filled by RaggedAttention in Python in this order
    const u16* q;
    const int* lengths;  // with the new token, (rows,)
    const int* tables;   // (rows, width)
    const u16* keys;     // of one layer
    const u16* values;
    u16* out;            // (rows, HEADS, DIM)
    float* log_weights;  // natural, (rows, HEADS)
    float* parts;        // (blocks, 2, TEAM, PART)
    u32* arrivals;       // at each item, (MAX_ROWS, KV_HEADS); zero between launches
    u64 num_rows;
    u64 q_stride;        // of rows, in elements, as the next
    u64 page_stride;
    u64 table_width;
    double scale;
};

__device__ __forceinline__ int own_lane() { return threadIdx.x & 31; }

__device__ __forceinline__ int row_length(const Params& p, int row) { return max(1, __ldg(p.lengths + row)); }

// The run of this block in the line of all tiles.
struct Run {
    int size;          // of all runs but the last
    int begin, end;
    int row, row_begin;  // where it begins, and the first tile of that row

    __device__ __forceinline__ explicit Run(const Params& p) {
        const int lane = own_lane();
        int counts[ROWS_OF_LANE], until = 0, longest = 0;
#pragma unroll
        for (int i = 0; i < ROWS_OF_LANE; i++) {
            const int row_of_lane = lane * ROWS_OF_LANE + i;
            counts[i] = row_of_lane < p.num_rows ? TEAMS * ceil_div(row_length(p, row_of_lane), TILE) : 0;
            until += counts[i];
            longest = max(longest, counts[i]);
        }
        int edge = -until;
#pragma unroll
        for (int offset = 1; offset < 32; offset <<= 1) {
            const int before = __shfl_up_sync(~0u, until, offset);
            if (lane >= offset) until += before;
        }
        edge += until;
        const int total = __shfl_sync(~0u, until, 31);
        longest = __reduce_max_sync(~0u, longest) / TEAMS;
        size = max(max(LEAST, ceil_div(total, gridDim.x)), ceil_div(longest, MOST_PARTS));
        begin = blockIdx.x * size;
        end = min(total, begin + size);
        int num_before = 0, last_edge = 0;
#pragma unroll
        for (int i = 0; i < ROWS_OF_LANE; i++) {
            edge += counts[i];
            if (lane * ROWS_OF_LANE + i >= p.num_rows || edge > begin) break;
            num_before++;
            last_edge = edge;
        }
        row = __reduce_add_sync(~0u, num_before);
        row_begin = __reduce_max_sync(~0u, last_edge);
    }
};

struct Part {  // of an item
    int row, kv_head, length;
    int first, num_tiles;  // of the item; the first in the line of all
    int begin, end;        // tiles of the item that are in this block's run

    __device__ __forceinline__ bool is_whole() const { return begin == 0 && end == num_tiles; }
};
