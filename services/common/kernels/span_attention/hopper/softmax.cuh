// The running softmax of `softmax.py`, operation by operation. A thread has two rows, eight apart, and of both every fourth
// pair of columns.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/sizes.cuh"

// The least whole power of two that no score of a row exceeds; four lanes have a row.
__device__ __forceinline__ float highest(const float (&scores)[TOKENS / 2], int half, float scale) {
  float most = fmaxf(scores[half * 2], scores[half * 2 + 1]);
#pragma unroll
  for (int eight = 1; eight < TOKENS / 8; ++eight)
    most = fmaxf(most, fmaxf(scores[eight * 4 + half * 2], scores[eight * 4 + half * 2 + 1]));
  most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
  most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
  return upwards(__fmul_rn(most, scale));
}

struct Part {
  float best[HALVES], mass[HALVES], sum[COLUMNS / 2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) best[half] = NOTHING, mass[half] = 0.f;
#pragma unroll
    for (int number = 0; number < COLUMNS / 2; ++number) sum[number] = 0.f;
  }

  __device__ __forceinline__ void fade(int half, float by) {
    mass[half] = __fmul_rn(mass[half], by);
#pragma unroll
    for (int eight = 0; eight < COLUMNS / 8; ++eight) {
      sum[eight * 4 + half * 2] = __fmul_rn(sum[eight * 4 + half * 2], by);
      sum[eight * 4 + half * 2 + 1] = __fmul_rn(sum[eight * 4 + half * 2 + 1], by);
    }
  }

  // Adds a half of the part that follows it.
  __device__ __forceinline__ void fold(const Part& next, int half) {
    const float top = fmaxf(best[half], next.best[half]), by = fade_of(__fsub_rn(next.best[half], top));
    fade(half, fade_of(__fsub_rn(best[half], top)));
    mass[half] = __fmaf_rn(next.mass[half], by, mass[half]);
#pragma unroll
    for (int eight = 0; eight < COLUMNS / 8; ++eight) {
      const int number = eight * 4 + half * 2;
      sum[number] = __fmaf_rn(next.sum[number], by, sum[number]);
      sum[number + 1] = __fmaf_rn(next.sum[number + 1], by, sum[number + 1]);
    }
    best[half] = top;
  }

  __device__ __forceinline__ void fold(const Part& next) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) fold(next, half);
  }
};

__device__ __forceinline__ void clear(float (&scores)[TOKENS / 2]) {
#pragma unroll
  for (int number = 0; number < TOKENS / 2; ++number) scores[number] = 0.f;
}

// A half without rows weighs nothing.
__device__ __forceinline__ void clear(unsigned (&weights)[TOKENS / 16][4]) {
#pragma unroll
  for (int each = 0; each < TOKENS / 4; ++each) weights[each / 4][each % 4] = kept(0);
}

// Weights as the tensor cores take them.
__device__ __forceinline__ void pack(unsigned (&weights)[TOKENS / 16][4], const float (&scores)[TOKENS / 2]) {
#pragma unroll
  for (int each = 0; each < TOKENS / 4; ++each)
    if (each % 2 < HALVES) weights[each / 4][each % 4] = pair_of(scores[each * 2], scores[each * 2 + 1]);
}
