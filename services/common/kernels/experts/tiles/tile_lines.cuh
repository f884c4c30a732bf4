// How a warpgroup multiplies its 128 lines of an expert by rows of a stage.
//
// `build.cuh` defines described_fewer and held_fewer(sums, lines, rows) of FEWER rows, and those of as many as there are places: one
// instruction of 64 lines and sixteen inputs. Lines of a half of both warpgroups lie before those of the other half; a warp has
// sixteen of each, which belong to all of its outputs (see LaneLines).

#pragma once

#include "experts/tiles/tile_sizes.cuh"
#include "barrier.cuh"
#include "e4m3.cuh"
#include "warp.cuh"
#include "wgmma.cuh"

struct TileRing {
  unsigned memory;

  __device__ unsigned weight(int stage) const { return memory + stage * STAGE_BYTES; }
  __device__ unsigned lines(int stage, int half, int group) const { return weight(stage) + (half * GROUPS + group) * 64 * ROW; }
  __device__ unsigned rows(int stage) const { return weight(stage) + WEIGHT_BYTES; }
  __device__ unsigned full(int stage) const { return memory + BARRIERS_AT + stage * 16; }
  __device__ unsigned empty(int stage) const { return full(stage) + 8; }
};

template <int ROWS>
using TileSums = float[HALVES][ROWS / 2];

template <int ROWS>
__device__ __forceinline__ void multiply_described(float (&sums)[ROWS / 2], unsigned long long lines, unsigned long long rows) {
  if constexpr (ROWS == FEWER)
    described_fewer(sums, lines, rows);
  else
    described_most(sums, lines, rows);
}
template <int ROWS>
__device__ __forceinline__ void multiply_held(float (&sums)[ROWS / 2], const unsigned (&lines)[4], unsigned long long rows) {
  if constexpr (ROWS == FEWER)
    held_fewer(sums, lines, rows);
  else
    held_most(sums, lines, rows);
}

// Numbers lie in shared memory as instructions take them.
template <int ROWS>
__device__ __forceinline__ void multiply_numbers(TileSums<ROWS>& sums, const TileRing& ring, int stage, int group) {
  begin_products();
#pragma unroll
  for (int sixteen = 0; sixteen < 4; ++sixteen)
#pragma unroll
    for (int half = 0; half < HALVES; ++half)
      multiply_described<ROWS>(sums[half], descriptor(ring.lines(stage, half, group)) + 2 * sixteen,
                               descriptor(ring.rows(stage)) + 2 * sixteen);
  end_products();
}

// Codes are widened in registers, sixteen inputs while those before are multiplied. `scales` are those of a warp's lines: of gates, and of what they gate.
template <int ROWS>
__device__ __forceinline__ void multiply_codes(TileSums<ROWS>& sums, unsigned (&left)[2][HALVES][4], const TileRing& ring,
                                               int stage, const unsigned (&scales)[2], int group, int warp, int lane) {
  unsigned codes[HALVES * 2][4];
#pragma unroll
  for (int sixteen = 0; sixteen < 8; ++sixteen) {
    if (sixteen % 4 == 0) {
#pragma unroll
      for (int own = 0; own < HALVES * 2; ++own)
        load_words(codes[own], ring.lines(stage, own / 2, group) + (warp * 16 + own % 2 * 8 + lane / 4) * ROW +
                                   ((lane % 4 * 2 + sixteen / 4) ^ lane / 4) * 16);
    }
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const unsigned first = codes[half * 2][sixteen % 4], second = codes[half * 2 + 1][sixteen % 4];
      unsigned (&four)[4] = left[sixteen % 2][half];
      four[0] = scaled_codes(upper_codes(first), scales[0]);
      four[1] = scaled_codes(upper_codes(second), scales[1]);
      four[2] = scaled_codes(lower_codes(first), scales[0]);
      four[3] = scaled_codes(lower_codes(second), scales[1]);
#pragma unroll
      for (int at = 0; at < 4; ++at) asm volatile("" : "+r"(four[at])::"memory");
    }
    begin_products();
#pragma unroll
    for (int half = 0; half < HALVES; ++half)
      multiply_held<ROWS>(sums[half], left[sixteen % 2][half],
                          descriptor(ring.rows(stage) + sixteen / 4 * PANEL_BYTES) + 2 * (sixteen % 4));
    end_products();
    await_products<1>();
  }
}
