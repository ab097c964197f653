// How keys and values come: through a ring of slots in shared memory, of one warp; a tile of keys, one of values, and so
// on. Whoever takes one asks for the one of AHEAD tiles later. Columns of 16 bytes change places by token, so that no
// two rows of a matrix lie in the same banks.

struct Ring {
    u32 base;
    int taken, asked;  // slots that are next
    int tile;          // that was asked for last
    int page, next_page;
    u64 place;         // of this lane's first numbers of that tile

    __device__ __forceinline__ explicit Ring(const char* memory)
        : base(shared_address(memory) + threadIdx.x / 32 * SLOTS * SLOT_BYTES) {}

    __device__ __forceinline__ void begin(const Params& p, const Part& part) {
        __syncwarp();  // all have read what came before
        taken = asked = 0;
        tile = part.begin - 1;
        next_page = __ldg(table(p, part) + part.begin * TILE / PAGE);
        page = next_page;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            ask_for_keys(p, part);
            ask(p.values, part);
        }
    }

    __device__ __forceinline__ u32 take_keys(const Params& p, const Part& part) {
        wait();
        ask_for_keys(p, part);
        return take();
    }

    __device__ __forceinline__ u32 take_values(const Params& p, const Part& part) {
        wait();
        ask(p.values, part);
        return take();
    }

  private:
    static __device__ __forceinline__ const int* table(const Params& p, const Part& part) {
        return p.tables + part.row * p.table_width;
    }
    static __device__ __forceinline__ int token() { return own_lane() / LANES; }
    static __device__ __forceinline__ int next(int slot) { return slot + 1 == SLOTS ? 0 : slot + 1; }

    // What all lanes asked for is there, and all are done with the tile before, whose slot is the next to be filled.
    __device__ __forceinline__ void wait() {
        wait_for_groups<2 * AHEAD - 1>();
        __syncwarp();
    }

    __device__ __forceinline__ u32 take() {
        const u32 address = base + taken * SLOT_BYTES;
        taken = next(taken);
        return address;
    }

    __device__ __forceinline__ void ask_for_keys(const Params& p, const Part& part) {
        constexpr int TILES = PAGE / TILE;
        tile++;
        if (tile % TILES == 0 || tile == part.begin) {
            page = next_page;
            const int last = (part.end - 1) / TILES;
            next_page = __ldg(table(p, part) + min(tile / TILES + 1, last));
        }
        const int slot = tile % TILES * TILE + token();
        place = page * p.page_stride + ((u64)slot * KV_HEADS + part.kv_head) * DIM + own_lane() % LANES * 8;
        ask(p.keys, part);
    }

    __device__ __forceinline__ void ask(const u16* tensor, const Part& part) {
        const int left = part.length - tile * TILE - token();
        const int column = own_lane() % LANES ^ token();
        const u32 to = base + asked * SLOT_BYTES + token() * DIM * 2 + column * 16;
        if (tile < part.end) {
#pragma unroll
            for (int i = 0; i < STEPS; i++)
                copy_later((to ^ (i * TOKENS % 8 * 16)) + i * 512, tensor + place + i * TOKENS * KV_HEADS * DIM,
                           i * TOKENS < left);
        }
        end_group();
        asked = next(asked);
    }
};
