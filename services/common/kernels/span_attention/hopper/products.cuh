// Scores and weighted values by the tensor cores. `build.cuh` defines multiply_scores and multiply_values: one
// instruction of 16 inputs each.

#pragma once

#include "build.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"

// Values have their columns side by side, panels of them apart.
__device__ __forceinline__ unsigned long long columns_at(unsigned address) { return turned_descriptor(address, HALF_TILE); }

__device__ __forceinline__ void ask_scores(float (&scores)[TOKENS / 2], unsigned queries, unsigned keys) {
  hold(scores);
  begin_products();
#pragma unroll
  for (int panel = 0; panel < PANELS; ++panel) {
#pragma unroll
    for (int part = 0; part < PANEL / 16; ++part)  // 32 bytes further
      multiply_scores(scores, descriptor(queries + panel * QUERY_PANEL) + 2 * part,
                      descriptor(keys + panel * HALF_TILE) + 2 * part, panel + part > 0);
  }
}

__device__ __forceinline__ void ask_values(float (&sum)[COLUMNS / 2], const unsigned (&weights)[TOKENS / 16][4],
                                           unsigned values) {
  hold(sum);
  hold(weights);
  begin_products();
#pragma unroll
  for (int part = 0; part < TOKENS / 16; ++part)
    multiply_values(sum, weights[part], columns_at(values + part * 16 * PANEL_BYTES));
}

// Adds each row's weights, by products with ones: in the order of all other sums.
__device__ __forceinline__ void add_mass(float (&mass)[HALVES], const unsigned (&weights)[TOKENS / 16][4]) {
  float sums[4] = {mass[0], mass[0], mass[HALVES - 1], mass[HALVES - 1]};
#pragma unroll
  for (int part = 0; part < TOKENS / 16; ++part) multiply_ones(sums, weights[part]);
  mass[HALVES - 1] = sums[2], mass[0] = sums[0];
}

// The same by weights in shared memory, which also have products with ones behind the values. Sums begin anew.
__device__ __forceinline__ void add_weighed(float (&sums)[COLUMNS / 2 + 4], unsigned weights, unsigned values, unsigned ones) {
  begin_products();
#pragma unroll
  for (int part = 0; part < TOKENS / 16; ++part)
    multiply_weighed(sums, descriptor(weights) + 2 * part, turned_descriptor(values + part * 16 * PANEL_BYTES, ones - values),
                     part > 0);
}
