// What the programs that run a kernel on the CPU share: `PROGRAM KERNEL BLOCKS THREADS SHARED_BYTES SEED`, from standard
// input to standard output.
//
// The input is the number of arrays, of each its address where it comes from, its bytes and its content, and then
// Params, which begin with addresses in those arrays. The output is the content of all arrays. Seed 0 runs all in order.
#pragma once

#include <array>

#include "cuda_on_cpu.h"

constexpr size_t MOST_SHARED_BYTES = 256 << 10;

struct Array {
    unsigned long long address, size;
    std::unique_ptr<char[]> content;  // of its own, so that AddressSanitizer knows where it ends
};

template <typename T>
void read(T* to, size_t count) {
    if (fread(to, sizeof(T), count, stdin) != count) fail("the input is too short");
}

inline std::vector<Array> read_arrays() {
    unsigned long long count;
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

template <typename Params>
Params read_params(const std::vector<Array>& arrays, size_t num_pointers) {
    std::array<unsigned long long, sizeof(Params) / 8> fields;
    read(fields.data(), fields.size());
    for (size_t i = 0; i < num_pointers; i++) {
        const auto array = std::find_if(arrays.begin(), arrays.end(), [&](const Array& array) {
            return array.address <= fields[i] && fields[i] < array.address + array.size;
        });
        if (array == arrays.end()) fail("there is no array for field " + std::to_string(i));
        fields[i] = (unsigned long long)array->content.get() + (fields[i] - array->address);
    }
    return same_bits<Params>(fields);
}

// Shared memory holds anything at first, here numbers that are none, and ends where the launch says.
inline void begin_block(int number, char* shared, size_t shared_bytes) {
    blockIdx.x = number;
    memset(shared, 0xff, MOST_SHARED_BYTES);
    ASAN_POISON_MEMORY_REGION(shared + shared_bytes, MOST_SHARED_BYTES - shared_bytes);
}

// `shared` is asked for the dynamic shared memory of the block that asks.
template <typename Params>
void run_program(char** given, size_t num_pointers, std::function<char*()> shared, std::function<void(Params)> kernel) {
    const std::vector<Array> arrays = read_arrays();
    const Params params = read_params<Params>(arrays, num_pointers);
    gridDim.x = std::stoi(given[2]);
    blockDim.x = std::stoi(given[3]);
    const size_t shared_bytes = std::stoul(given[4]);
    run_blocks(
        gridDim.x, blockDim.x, std::stoul(given[5]), [&](int number) { begin_block(number, shared(), shared_bytes); },
        [](int number) { threadIdx.x = number; }, [&] { kernel(params); });
    for (const Array& array : arrays) fwrite(array.content.get(), 1, array.size, stdout);
}
