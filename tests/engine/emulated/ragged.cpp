// Runs the attention of many rows on the CPU; see kernel_program.h.
#include "kernel_program.h"

thread_local __align__(512) char memory_of_rings[MOST_SHARED_BYTES];

#include "ptx.cuh"

#include "numbers.cuh"
#include "rows.cuh"
#include "ring.cuh"
#include "columns.cuh"
#include "ragged.cu"

int main(int, char** given) {
    run_program<Params>(given, offsetof(Params, num_rows) / 8, [] { return memory_of_rings; }, attend);
}
