// Runs one kernel of the decode step on the CPU; see kernel_program.h.
#include "kernel_program.h"

thread_local __align__(128) char memory_of_queue[MOST_SHARED_BYTES];

#include "ptx.cuh"

#include "numbers.cuh"
#include "common.cuh"
#include "clocks.cuh"
#include "exchange.cuh"
#include "weights.cuh"
#include "products.cuh"
#include "project.cuh"
#include "places.cuh"
#include "cached.cuh"
#include "heads.cuh"
#include "sums.cuh"
#include "columns.cuh"
#include "lead.cuh"
#include "attention.cuh"
#include "step.cu"

static_assert(MUST, "what the case is for");

int main(int, char** given) {
    const auto kernel = std::string(given[1]) == "step" ? step : begin_step;
    run_program<Params>(given, offsetof(Params, zero) / 8, [] { return memory_of_queue; }, [&](Params p) {
        mapped = p.cache;
        kernel(p);
    });
}
