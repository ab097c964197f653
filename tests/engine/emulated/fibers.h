// Runs the threads of CUDA blocks on the CPU: a block is a thread of the system, so that its shared memory can be
// thread_local, and its threads are fibers, which switch where they wait for each other or look at memory. One block
// runs at a time, so a run with the same seed is the same run.
#pragma once

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

constexpr size_t STACK_BYTES = 256 << 10;
constexpr int MOST_IDLE = 20000;  // turns, of all blocks, in which nobody goes on

[[noreturn]] inline void fail(const std::string& reason) {
    fprintf(stderr, "%s\n", reason.c_str());
    _Exit(3);
}

// Keep this stack's pointer at `from` and go on where the other was kept; registers that a call preserves lie on it.
extern "C" void switch_stacks(void** from, void* to);
asm(".globl switch_stacks\n"
    "switch_stacks:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    "ret\n");

// Some threads of a block that come together again and again; each gives something that all may see then.
struct Meeting {
    int size = 0, num_here = 0;
    unsigned number = 0;
    const char* name = nullptr;
    alignas(16) char given[2][32 * 64];  // of this meeting and of the one before, which some may still look at
};

struct Fiber {
    std::unique_ptr<char[]> stack;
    void* pointer = nullptr;
    const char* waits_for = "its beginning";
    const Meeting* meeting = nullptr;  // whose end it waits for, and its number
    unsigned number = 0;
    bool is_done = false;

    bool can_go_on() const { return !meeting || meeting->number != number; }
};

// Asynchronous work, which is done some turns later.
struct Later {
    int turns;
    std::function<void()> work;
};

struct Launch {  // what all blocks share; only the block whose turn it is uses it
    std::mutex mutex;
    std::vector<struct Block*> blocks;
    struct Block* turn = nullptr;
    std::mt19937 random;
    bool is_random = false;
    int num_idle = 0;  // turns since somebody went on
};

inline Launch launch;

struct Block {
    std::vector<Fiber> fibers;
    std::vector<int> order;  // of the fibers that are not done
    std::vector<bool> is_held_back;  // of warps
    std::vector<Later> later;
    std::vector<Meeting> warps;
    Meeting all, some[16];
    void* scheduler = nullptr;
    const void* scheduler_stack = nullptr;
    size_t scheduler_bytes = 0;
    int current = 0;
    std::function<void(int)> enter;  // told who is next
    std::function<void()> body;
    std::condition_variable has_turn;
};

inline thread_local Block* block = nullptr;

inline int below(int limit) { return launch.random() % limit; }

// Somebody went on: it is not for ever that the others wait.
inline void note_progress() { launch.num_idle = 0; }

inline void yield(const char* waits_for) {
    Fiber& fiber = block->fibers[block->current];
    fiber.waits_for = waits_for;
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, block->scheduler_stack, block->scheduler_bytes);
    switch_stacks(&fiber.pointer, block->scheduler);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

template <typename Condition>
void wait_until(const char* waits_for, Condition is_met) {
    while (!is_met()) yield(waits_for);
}

// One more thread is here. Returns the number of the meeting, which has ended if it is no longer that.
inline unsigned tell(Meeting& meeting, int size, const char* name) {
    if (meeting.num_here && (strcmp(meeting.name, name) || meeting.size != size))
        fail(std::string("some threads are at ") + meeting.name + " and others at " + name);
    meeting.name = name;
    meeting.size = size;
    const unsigned number = meeting.number;
    if (++meeting.num_here == size) {
        meeting.num_here = 0;
        meeting.number++;
        note_progress();
    }
    return number;
}

inline void meet(Meeting& meeting, int size, const char* name) {
    const unsigned number = tell(meeting, size, name);
    Fiber& fiber = block->fibers[block->current];
    fiber.meeting = &meeting;
    fiber.number = number;
    if (!fiber.can_go_on()) yield(name);
}

// What each lane of this warp gives, when all did; good until the warp's next meeting.
template <typename T>
const T* share(const T& value, const char* name) {
    static_assert(sizeof(T) <= 64);
    Meeting& warp = block->warps[block->current / 32];
    T* const given = (T*)warp.given[warp.number % 2];
    given[block->current % 32] = value;
    meet(warp, 32, name);
    return given;
}

inline void do_later(std::function<void()> work) { block->later.push_back({1 + below(12), std::move(work)}); }

extern "C" inline void begin_fiber() {
    __sanitizer_finish_switch_fiber(nullptr, &block->scheduler_stack, &block->scheduler_bytes);
    block->body();
    Fiber& fiber = block->fibers[block->current];
    fiber.is_done = true;
    note_progress();
    __sanitizer_start_switch_fiber(nullptr, block->scheduler_stack, block->scheduler_bytes);
    switch_stacks(&fiber.pointer, block->scheduler);
    __builtin_unreachable();
}

inline void prepare(Fiber& fiber) {
    fiber.stack.reset(new char[STACK_BYTES]);
    void** top = (void**)(((size_t)fiber.stack.get() + STACK_BYTES) & ~size_t(15)) - 2;
    *top = (void*)begin_fiber;  // where the first switch returns to, with six registers
    fiber.pointer = top - 6;
}

inline void resume(int number) {
    Fiber& fiber = block->fibers[number];
    block->current = number;
    block->enter(number);
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, fiber.stack.get(), STACK_BYTES);
    switch_stacks(&block->scheduler, fiber.pointer);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

inline void do_what_is_due() {
    for (size_t i = block->later.size(); i-- > 0;) {
        if (--block->later[i].turns > 0) continue;
        const Later due = std::move(block->later[i]);
        block->later.erase(block->later.begin() + i);
        due.work();
        note_progress();
    }
}

// With a seed, this warp may have to wait until nobody else goes on: is what it has yet to use safe from the others?
inline void maybe_hold_back() {
    if (launch.is_random && below(256) == 0) block->is_held_back[block->current / 32] = true;
}

inline void release_warps() { block->is_held_back.assign(block->is_held_back.size(), false); }

inline void run_each_fiber() {
    if (launch.is_random && below(8) == 0) std::shuffle(block->order.begin(), block->order.end(), launch.random);
    if (launch.num_idle > 4 * (int)launch.blocks.size()) release_warps();
    for (const int number : block->order)
        if (!block->is_held_back[number / 32] && block->fibers[number].can_go_on()) resume(number);
    const auto is_done = [](int number) { return block->fibers[number].is_done; };
    block->order.erase(std::remove_if(block->order.begin(), block->order.end(), is_done), block->order.end());
    do_what_is_due();
}

[[noreturn]] inline void fail_for_ever() {
    std::string reason = "nobody goes on";
    for (size_t i = 0; i < launch.blocks.size(); i++) {
        std::map<std::string, int> counts;
        for (const int number : launch.blocks[i]->order) counts[launch.blocks[i]->fibers[number].waits_for]++;
        for (const auto& [waits_for, count] : counts)
            reason += "\nblock " + std::to_string(i) + ": " + std::to_string(count) + " threads wait for " + waits_for;
    }
    fail(reason);
}

// A block's turn ends when nobody in it goes on, or at any time with a seed.
inline void run_turn() {
    do {
        if (launch.num_idle++ > MOST_IDLE) fail_for_ever();
        run_each_fiber();
    } while (!block->order.empty() && launch.num_idle == 0 && !(launch.is_random && below(100) == 0));
}

inline void hand_over() {
    std::vector<Block*>& blocks = launch.blocks;
    size_t next = std::find(blocks.begin(), blocks.end(), block) - blocks.begin() + 1;
    if (block->order.empty()) blocks.erase(blocks.begin() + --next);
    if (launch.is_random && !blocks.empty()) next = below(blocks.size());
    launch.turn = blocks.empty() ? nullptr : blocks[next % blocks.size()];
    if (launch.turn) launch.turn->has_turn.notify_one();
}

inline void run_block(Block& own, std::function<void()> begin) {
    std::unique_lock<std::mutex> lock(launch.mutex);
    block = &own;
    begin();
    for (Fiber& fiber : own.fibers) prepare(fiber);
    while (!own.order.empty()) {
        own.has_turn.wait(lock, [&] { return launch.turn == &own; });
        run_turn();
        hand_over();
    }
}

// `begin` is called in each block's thread of the system, `enter` whenever a thread of it goes on.
inline void run_blocks(
    int num_blocks, int num_threads, unsigned seed, std::function<void(int)> begin, std::function<void(int)> enter,
    std::function<void()> body
) {
    launch.random.seed(seed);
    launch.is_random = seed != 0;
    std::vector<Block> blocks(num_blocks);
    for (Block& each : blocks) {
        each.fibers.resize(num_threads);
        for (int i = 0; i < num_threads; i++) each.order.push_back(i);
        each.is_held_back.resize(num_threads / 32);
        each.warps.resize(num_threads / 32);
        each.enter = enter;
        each.body = body;
        launch.blocks.push_back(&each);
    }
    launch.turn = &blocks[0];
    std::vector<std::thread> threads;
    for (int i = 0; i < num_blocks; i++) threads.emplace_back([&, i] { run_block(blocks[i], [&] { begin(i); }); });
    for (std::thread& thread : threads) thread.join();
}
