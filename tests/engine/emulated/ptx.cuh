// Stands for the kernels' own ptx.cuh: the same functions for the CPU.
//
// Looking at memory lets others run first. A bulk copy reads at once and writes some turns later, any other copy when
// its group is waited for; until then its place is poisoned, so that AddressSanitizer reports whoever reads it. What is
// told by an arrival is written only then. A barrier in shared memory is 8 bytes, as on a GPU.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

inline u16 from_float(float value) {
    const u32 bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline u32 from_floats(float low, float high) { return (u32)from_float(high) << 16 | from_float(low); }

inline float exp2_fast(float value) { return exp2f(value); }

inline uint4 load_cached(const u16* from) { return *(const uint4*)from; }

template <int COUNT>
void look(u32 (&v)[COUNT], const u16* from) {
    struct alignas(4 * COUNT) Words {
        u32 words[COUNT];
    };
    yield("a vector");
    const Words seen = *(const Words*)from;
    for (int i = 0; i < COUNT; i++) v[i] = seen.words[i];
}

inline u64 look(const u64* from) {
    yield("a tagged number");
    return *from;
}

inline void store(u16* to, u32 pair) {
    *(u32*)to = pair;
    note_progress();
}

inline void store(u64* to, u64 value) {
    *to = value;
    note_progress();
}

// What each warp of the block stored and nobody was told of.
inline thread_local std::map<int, std::vector<std::pair<float*, float4>>> untold;

inline void store(float* to, float4 v) { untold[threadIdx.x / 32].push_back({to, v}); }

inline float4 look(const float* from) {
    yield("a part");
    return *(const float4*)from;
}

inline u32 arrive_at(u32* counter) {
    yield("an arrival");
    for (const auto& [to, v] : untold[threadIdx.x / 32]) *(float4*)to = v;
    untold[threadIdx.x / 32].clear();
    note_progress();
    return (*counter)++;
}

// Shared memory is thread_local, so an address in it is one from here.
inline thread_local __align__(512) char beginning_of_shared;

inline u32 shared_address(const void* pointer) { return (const char*)pointer - &beginning_of_shared; }

template <typename T>
T* at_shared_address(u32 address) {
    return (T*)(&beginning_of_shared + (int)address);
}

struct Rows {
    u32 words[4];
};

inline void load_matrices(uint4& v, u32 from) {
    const Rows own = *at_shared_address<const Rows>(from);
    if (from % 16) fail("an address for load_matrices is no multiple of 16");
    const Rows* const rows = share(own, "load_matrices");
    const int row = threadIdx.x % 32 / 4, word = threadIdx.x % 4;
    v = {rows[row].words[word], rows[8 + row].words[word], rows[16 + row].words[word], rows[24 + row].words[word]};
}

inline void load_turned_matrices(uint4& v, u32 from) {
    const Rows own = *at_shared_address<const Rows>(from);
    if (from % 16) fail("an address for load_turned_matrices is no multiple of 16");
    const Rows* const rows = share(own, "load_turned_matrices");
    const int column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
    u32 turned[4];
    for (int i = 0; i < 4; i++) {
        const u16* const first = (const u16*)(rows + 8 * i + row);
        turned[i] = (u32)first[column + 8] << 16 | first[column];
    }
    v = {turned[0], turned[1], turned[2], turned[3]};
}

inline u32 turn_matrix(u32 pair) {
    const u16* const numbers = (const u16*)share(pair, "turn_matrix");
    const int column = threadIdx.x % 32 / 4, row = threadIdx.x % 4 * 2;
    return (u32)numbers[(row + 1) * 8 + column] << 16 | numbers[row * 8 + column];
}

inline uint4 load_shared(u32 from) { return *at_shared_address<const uint4>(from); }

struct Copy {  // of 16 bytes
    char* to;
    uint4 content;
};

inline thread_local std::map<int, std::deque<std::vector<Copy>>> groups;  // of each thread; the last one is open

inline std::deque<std::vector<Copy>>& own_groups() {
    auto& own = groups[threadIdx.x];
    if (own.empty()) own.emplace_back();
    return own;
}

inline void copy_later(u32 to, const u16* from, bool is_there) {
    char* const place = at_shared_address<char>(to);
    if ((size_t)place % 16 || (size_t)from % 16) fail("a copy is not of a multiple of 16 bytes");
    own_groups().back().push_back({place, is_there ? *(const uint4*)from : uint4{}});
    memset(place, 0xff, 16);  // which AddressSanitizer sees
    ASAN_POISON_MEMORY_REGION(place, 16);
}

inline void end_group() { own_groups().emplace_back(); }

template <int COUNT>
void wait_for_groups() {
    for (auto& own = own_groups(); own.size() > COUNT + 1; own.pop_front())
        for (const Copy& copy : own.front()) {
            ASAN_UNPOISON_MEMORY_REGION(copy.to, 16);
            *(uint4*)copy.to = copy.content;
        }
    maybe_hold_back();
}

struct Barrier {
    unsigned char phase, num_expected, num_missing, is_set_up;
    int bytes;  // that are expected and not there

    void look() {
        if (num_missing || bytes) return;
        phase ^= 1;
        num_missing = num_expected;
        note_progress();
    }
};

inline Barrier& barrier_at(u32 address) {
    Barrier& barrier = *at_shared_address<Barrier>(address);
    if (barrier.is_set_up != 0xb5) fail("there is no barrier at this address");
    return barrier;
}

inline void init_barrier(u32 barrier, int num_arrivals) {
    *at_shared_address<Barrier>(barrier) = {0, (unsigned char)num_arrivals, (unsigned char)num_arrivals, 0xb5, 0};
}

inline void fence_barriers() {}

inline void arrive_and_expect(u32 address, int bytes) {
    Barrier& barrier = barrier_at(address);
    if (!barrier.num_missing--) fail("more threads arrive at a barrier than it expects");
    barrier.bytes += bytes;
    barrier.look();
}

inline void arrive(u32 barrier) { arrive_and_expect(barrier, 0); }

inline void wait_for_barrier(u32 address, int parity) {
    const Barrier& barrier = barrier_at(address);
    wait_until("a barrier", [&] { return barrier.phase != parity; });
}

inline float load_alone(const float* from) { return *from; }

inline void copy_to_shared(u32 to, const u16* from, int bytes, u32 address) {
    char* const place = at_shared_address<char>(to);
    if (bytes <= 0 || bytes % 16 || (size_t)place % 16 || (size_t)from % 16)
        fail("a bulk copy is not of multiples of 16 bytes");
    Barrier& barrier = barrier_at(address);
    const std::vector<char> data((const char*)from, (const char*)from + bytes);
    memset(place, 0xff, bytes);  // which AddressSanitizer sees
    ASAN_POISON_MEMORY_REGION(place, bytes);
    do_later([=, &barrier] {
        ASAN_UNPOISON_MEMORY_REGION(place, bytes);
        memcpy(place, data.data(), bytes);
        barrier.bytes -= bytes;
        barrier.look();
    });
}

// What stands for the driver's: bytes of the innermost dimension, strides in bytes of the others, and runs of a box.
struct __align__(64) TensorMap {
    u64 run, strides[4], num_runs, unused[10];
};

inline const u16* mapped = nullptr;  // the tensor

inline void copy_box(u32 to, const TensorMap& map, int a, int b, int c, int d, u32 barrier) {
    if (to % 128) fail("a box goes to no multiple of 128 bytes");
    const char* from = (const char*)mapped + a * map.strides[0] + c * map.strides[2] + d * map.strides[3];
    for (u64 i = 0; i < map.num_runs; i++)
        copy_to_shared(to + i * map.run, (const u16*)(from + (b + i) * map.strides[1]), map.run, barrier);
}

struct Factors {  // of one lane
    u32 a[4], b[2];

    static float half(u32 word, int i) { return __uint_as_float(i ? word & 0xffff0000u : word << 16); }

    // Element (i, k) of a, (16, 16), and (k, j) of b, (16, 8).
    static float of_a(const Factors* lanes, int i, int k) {
        return half(lanes[i % 8 * 4 + k % 8 / 2].a[(k >= 8) * 2 + (i >= 8)], k % 2);
    }
    static float of_b(const Factors* lanes, int k, int j) { return half(lanes[j * 4 + k % 8 / 2].b[k >= 8], k % 2); }
};

inline void multiply(float (&d)[4], const uint4& a, u32 b0, u32 b1) {
    const Factors* const lanes = share(Factors{{a.x, a.y, a.z, a.w}, {b0, b1}}, "multiply");
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++)
            d[i] += Factors::of_a(lanes, row + i / 2 * 8, k) * Factors::of_b(lanes, k, column + i % 2);
}

template <int COUNT>
void sync_some(int number) {
    meet(block->some[number], COUNT, "sync_some");
    maybe_hold_back();
}

template <int COUNT>
void arrive_at_some(int number) {
    tell(block->some[number], COUNT, "sync_some");
}

template <int COUNT>
void give_registers() {}

template <int COUNT>
void take_registers() {}
