// How a warp multiplies its lines of a packed weight by `mma.sync`. `build.cuh` defines BAND: outputs of a warp.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/packed/stages.cuh"

constexpr int TILES = X_ROWS / 16, EIGHTS = LINES / 8;
static_assert(X_ROWS % 16 == 0 && TILE_LINES == WARPS * LINES, "whole instructions");

using Sums = float[TILES][LINES / 2];

__device__ __forceinline__ void load_left(unsigned from, unsigned (&left)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(left[0]), "=r"(left[1]), "=r"(left[2]), "=r"(left[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void multiply(float* sums, const unsigned (&left)[4], const unsigned (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

// Multiplies half a swizzled row of codes: of a line a lane has sixteen bytes, four for each word.
template <int SIDE>
__device__ __forceinline__ void take_side(Sums& sums, unsigned x, unsigned weight, const Scale (&scales)[EIGHTS], int lane) {
  unsigned codes[EIGHTS][4];
#pragma unroll
  for (int eight = 0; eight < EIGHTS; ++eight)
    load_four(weight + eight * 8 * SUB_BYTES + ((lane % 4 * 2 + SIDE) ^ lane / 4) * 16, codes[eight]);
#pragma unroll
  for (int part = 0; part < 4 * PIECES; ++part) {
    const int sixteen = SIDE * 4 * PIECES + part;  // of the row's inputs
    unsigned right[EIGHTS][2];
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) scales[eight].widen(codes[eight][part / PIECES], part % PIECES, right[eight]);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      unsigned left[4];
      load_left(x + sixteen / 4 * X_BYTES + tile * 16 * SUB_BYTES + ((sixteen % 4 * 2 + lane / 16) ^ lane % 8) * 16, left);
#pragma unroll
      for (int eight = 0; eight < EIGHTS; ++eight) multiply(sums[tile] + eight * 4, left, right[eight]);
    }
  }
}

__device__ __forceinline__ void open_scales(Scale (&scales)[EIGHTS], const unsigned* kept, int own) {
#pragma unroll
  for (int eight = 0; eight < EIGHTS; ++eight) scales[eight].open(kept[(own + eight * 8) / GRAIN]);
}

// Adds up the whole depth in order. `grouped` is 1 where each 128 inputs have scales of their own.
__device__ __forceinline__ void sum_up(Sums& sums, const Ring& ring, const unsigned* kept, int steps, int grouped, int warp,
                                       int lane) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int at = 0; at < LINES / 2; ++at) sums[tile][at] = 0.f;
  const int own = warp * LINES + lane / 4;
  int stage = 0, before = 0;
  unsigned parity = 0;
  for (int step = 0; step < steps; ++step) {
    await_phase(ring.full_at(stage), parity);
    // The products of the step before have begun by now, so all that they take has come out of shared memory. Behind its own
    // loads alone a stage would be given back while they wait for their turn. Nobody waits for the last ones.
    if (step > 0 && step - 1 + STAGES < steps && lane == 0) arrive(ring.empty_at(before));
    before = stage;
    __syncwarp();
#pragma unroll
    for (int sub = 0; sub < SUBS; ++sub) {
      Scale scales[EIGHTS];
      const unsigned x = ring.x(stage, sub) + lane % 16 * SUB_BYTES, weight = ring.weight(stage, sub) + own * SUB_BYTES;
      const unsigned* here = kept + (step * SUBS + sub) * GROUPS * grouped * GRAINS;
      open_scales(scales, here, own);
      take_side<0>(sums, x, weight, scales, lane);
      if constexpr (GROUPS > 1) open_scales(scales, here + grouped * GRAINS, own);
      take_side<1>(sums, x, weight, scales, lane);
    }
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
}
