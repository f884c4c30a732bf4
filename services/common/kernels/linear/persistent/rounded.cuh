// What sums become where something stands beside them.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/persistent/scales.cuh"
#include "linear/persistent/sizes.cuh"

// Rounds two results at once, where they shall take one register while what stands beside them is read.
__device__ __forceinline__ void round_early(float& low, float& high) {
  if constexpr (EARLY) return;
  unsigned both = pair_of(low, high);
  asm volatile("" : "+r"(both)::"memory");
  low = low_of(both), high = high_of(both);
}

__device__ __forceinline__ void apply_all(const Sum (&sums)[LINES / 2], const Scales& scales, float (&results)[LINES / 2],
                                          int lane) {
#pragma unroll
  for (int eight = 0; eight < LINES / 8; ++eight) {
    float four[4];
    scales.apply(sums, four, eight, lane);
    round_early(four[0], four[1]);
    round_early(four[2], four[3]);
#pragma unroll
    for (int at = 0; at < 4; ++at) results[eight * 4 + at] = four[at];
  }
}
