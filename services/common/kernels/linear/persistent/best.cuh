// The best number of each row in a tile, and its line: the lowest among equals. What is no number counts as the least.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/persistent/scales.cuh"
#include "linear/persistent/sizes.cuh"

constexpr int NOWHERE = 0x7FFFFFFF;
#define INFINITE __int_as_float(0x7F800000)

struct Best {
  float value;
  int line;

  __device__ __forceinline__ void take(float other, int at) {
    other = fmaxf(other, -INFINITE);
    if (other > value || (other == value && at < line)) value = other, line = at;
  }
};

// Leaves floats by rows and tiles where results would be, and lines where rows of their norm would.
__device__ __forceinline__ void end_best(const Sum (&sums)[LINES / 2], const Scales& scales, const Ends& ends, int row,
                                         int line, int lane) {
  Best best[2] = {{-INFINITE, NOWHERE}, {-INFINITE, NOWHERE}};
#pragma unroll
  for (int eight = 0; eight < LINES / 8; ++eight) {
    float four[4];
    scales.apply(sums, four, eight, lane);
#pragma unroll
    for (int one = 0; one < 2; ++one) {
      const int in_band = eight * 8 + lane % 4 * 2 + one, at = line + in_band;
      if (in_band >= BAND || at >= ends.outputs) continue;
      const unsigned both = pair_of(four[one], four[2 + one]);
      best[0].take(low_of(both), at);
      best[1].take(high_of(both), at);
    }
  }
  const int tiles = (ends.outputs + BAND - 1) / BAND, tile = line / BAND;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int apart = 1; apart < 4; apart *= 2)
      best[half].take(__shfl_xor_sync(~0u, best[half].value, apart), __shfl_xor_sync(~0u, best[half].line, apart));
    const int own = row + half * 8;
    if (lane % 4 != 0 || own >= ends.rows) continue;
    reinterpret_cast<float*>(ends.out)[(size_t)own * tiles + tile] = best[half].value;
    reinterpret_cast<int*>(ends.scaled)[(size_t)own * tiles + tile] = best[half].line;
  }
}
