// What a warp adds up over tokens, a tile of 16 at a time, for up to 8 queries: by tensor cores, of whose products the
// queries are the columns, so that 8 cost what one costs.

// Of queries 2 (lane % 4) and the next: their highest scores, the weights that this lane has seen, and weighted values,
// of some 4 dimensions in each 32; the two numbers of an array of four that belong to a query are 2 apart.
struct Columns {
    float values[DIM / 16][4], weight[2], highest[2];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int q = 0; q < 2; q++) {
            weight[q] = 0;
            highest[q] = NEVER;
        }
#pragma unroll
        for (int i = 0; i < DIM / 16; i++)
#pragma unroll
            for (int k = 0; k < 4; k++) values[i][k] = 0;
    }

    __device__ __forceinline__ void shrink(const float (&raised)[2]) {
#pragma unroll
        for (int q = 0; q < 2; q++) {
            const float factor = exp2_fast(highest[q] - raised[q]);
            highest[q] = raised[q];
            weight[q] *= factor;
#pragma unroll
            for (int i = 0; i < DIM / 16; i++) {
                values[i][q] *= factor;
                values[i][2 + q] *= factor;
            }
        }
    }

    // Scores of tokens lane / 4 and 8 more to their weights, as factors of products. `left`: tokens from lane / 4 on.
    __device__ __forceinline__ void weigh(float (&scores)[4], int left, u32 (&factors)[2]) {
        float raised[2];
#pragma unroll
        for (int q = 0; q < 2; q++) {
            if (left <= 0) scores[q] = NEVER;
            if (left <= 8) scores[2 + q] = NEVER;
            raised[q] = fmaxf(highest[q], max_of_tokens(fmaxf(scores[q], scores[2 + q])));
        }
        shrink(raised);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            scores[k] = exp2_fast(scores[k] - raised[k % 2]);
            weight[k % 2] += scores[k];
        }
        factors[0] = turn_matrix(from_floats(scores[0], scores[1]));
        factors[1] = turn_matrix(from_floats(scores[2], scores[3]));
    }

    // Let every lane have the weights of the whole warp.
    __device__ __forceinline__ void merge_lanes() {
#pragma unroll
        for (int q = 0; q < 2; q++)
#pragma unroll
            for (int offset = 4; offset < 32; offset <<= 1) weight[q] += __shfl_xor_sync(~0u, weight[q], offset);
    }

  private:
    static __device__ __forceinline__ float max_of_tokens(float value) {
#pragma unroll
        for (int offset = 4; offset < 32; offset <<= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
        return value;
    }
};
