// Runs one kernel of the decode step on the CPU: `decode_step KERNEL BLOCKS THREADS SHARED_BYTES SEED`, from standard
// input to standard output.
//
// The input is the number of arrays, of each its address where it comes from, its bytes and its content, and then
// Params with those addresses. The output is the content of all arrays. Seed 0 runs all in order.
#include "cuda_on_cpu.h"

thread_local __align__(128) char memory_of_queue[256 << 10];

#include "ptx.cuh"

#include "common.cuh"
#include "clocks.cuh"
#include "exchange.cuh"
#include "weights.cuh"
#include "project.cuh"
#include "places.cuh"
#include "heads.cuh"
#include "sums.cuh"
#include "attention.cuh"
#include "step.cu"

struct Array {
    u64 address, size;
    std::unique_ptr<char[]> content;  // of its own, so that AddressSanitizer knows where it ends
};

template <typename T>
void read(T* to, size_t count) {
    if (fread(to, sizeof(T), count, stdin) != count) fail("the input is too short");
}

std::vector<Array> read_arrays() {
    u64 count;
    read(&count, 1);
    std::vector<Array> arrays(count);
    for (Array& array : arrays) {
        read(&array.address, 1);
        read(&array.size, 1);
        array.content.reset(new char[array.size]);
        read(array.content.get(), array.size);
    }
    return arrays;
}

Params read_params(const std::vector<Array>& arrays) {
    u64 fields[sizeof(Params) / 8];
    read(fields, sizeof(Params) / 8);
    for (size_t i = 0; i < offsetof(Params, zero) / 8; i++) {
        const auto array = std::find_if(
            arrays.begin(), arrays.end(), [&](const Array& array) { return array.address == fields[i]; });
        if (array == arrays.end()) fail("there is no array for field " + std::to_string(i));
        fields[i] = (u64)array->content.get();
    }
    return same_bits<Params>(*(std::array<u64, sizeof(Params) / 8>*)fields);
}

// Shared memory holds anything at first, here numbers that are none, and ends where the launch says.
void begin_block(int number, size_t shared_bytes) {
    blockIdx.x = number;
    memset(memory_of_queue, 0xff, sizeof memory_of_queue);
    ASAN_POISON_MEMORY_REGION(memory_of_queue + shared_bytes, sizeof memory_of_queue - shared_bytes);
}

int main(int, char** given) {
    const std::vector<Array> arrays = read_arrays();
    const Params params = read_params(arrays);
    const auto kernel = std::string(given[1]) == "step" ? step : begin_step;
    blockDim.x = std::stoi(given[3]);
    const size_t shared_bytes = std::stoul(given[4]);
    run_blocks(
        std::stoi(given[2]), blockDim.x, std::stoul(given[5]), [&](int number) { begin_block(number, shared_bytes); },
        [](int number) { threadIdx.x = number; }, [&] { kernel(params); });
    for (const Array& array : arrays) fwrite(array.content.get(), 1, array.size, stdout);
}
