// The best number of each row in a tile beside all of them, and its line: the lowest among equals.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/persistent/best.cuh"
#include "linear/persistent/scales.cuh"
#include "linear/persistent/sizes.cuh"

__device__ __forceinline__ unsigned best_of(unsigned pair, unsigned other) {
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(other));
  return pair;
}

// A thread's best two lines, even and odd, become the best of all four lanes of its row, in both halves.
__device__ __forceinline__ unsigned best_of_lanes(unsigned best) {
  best = best_of(best, best >> 16 | best << 16);
  best = best_of(best, __shfl_xor_sync(~0u, best, 1));
  return best_of(best, __shfl_xor_sync(~0u, best, 2));
}

// The first of two lines that has the number, else what was found before.
__device__ __forceinline__ int first_of(unsigned pair, unsigned best, int at, int found) {
  asm("{\n.reg .pred low, high;\nsetp.eq.bf16x2 low|high, %1, %2;\n@high mov.b32 %0, %4;\n@low mov.b32 %0, %3;\n}"
      : "+r"(found)
      : "r"(pair), "r"(best), "r"(at), "r"(at + 1));
  return found;
}

// Two neighbours as they are stored. Whole sums are never asked for, but compiled.
__device__ __forceinline__ unsigned two_of(const Sum (&sums)[LINES / 2], int at) {
  return pair_of(float(sums[at]), float(sums[at + 1]));
}

// Leaves floats by rows and tiles where squares would be added, NaN where a tile has NaN or infinity, and lines where rows of
// their norm would be.
__device__ __forceinline__ void end_scored(const Sum (&sums)[LINES / 2], const Ends& ends, int row, int line, int lane) {
  const int first = line + lane % 4 * 2;
  unsigned best[2] = {0xFF80FF80u, 0xFF80FF80u};
#pragma unroll
  for (int eight = 0; eight < LINES / 8; ++eight) {
    if (eight * 8 + lane % 4 * 2 >= BAND || first + eight * 8 >= ends.outputs) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) best[half] = best_of(best[half], two_of(sums, eight * 4 + half * 2));
  }
  int found[2] = {NOWHERE, NOWHERE};
#pragma unroll
  for (int half = 0; half < 2; ++half) best[half] = best_of_lanes(best[half]);
#pragma unroll
  for (int eight = LINES / 8 - 1; eight >= 0; --eight) {
    if (eight * 8 + lane % 4 * 2 >= BAND || first + eight * 8 >= ends.outputs) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned pair = two_of(sums, eight * 4 + half * 2);
      found[half] = first_of(pair, best[half], first + eight * 8, found[half]);
    }
  }
  const int tiles = (ends.outputs + BAND - 1) / BAND, tile = line / BAND;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    found[half] = min(found[half], __shfl_xor_sync(~0u, found[half], 1));
    found[half] = min(found[half], __shfl_xor_sync(~0u, found[half], 2));
    const int own = row + half * 8;
    if (lane % 4 != 0 || own >= ends.rows) continue;
    const float value = low_of(best[half]);
    reinterpret_cast<float*>(ends.added)[(size_t)own * tiles + tile] = value < INFINITE ? value : INFINITE - INFINITE;
    reinterpret_cast<int*>(ends.scaled)[(size_t)own * tiles + tile] = found[half];
  }
}
