// How a warp multiplies its lines of a packed weight: codes and rows come through a ring in shared memory.
//
// `build.cuh` defines X_ROWS (of x, those behind the last count for nothing), TILE_LINES (of a CTA), BAND (outputs of a warp), BITS
// of a code, SUBS (swizzled rows of codes in a stage), STAGES, FINE (lines have scales of their own, else eight neighbours share
// one) and KIND: what follows the product.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/cuda/ring.cuh"
#include "linear/packed/e4m3.cuh"
#include "linear/packed/int4.cuh"

template <int>
struct Codes {
  using Of = E4m3;
};

template <>
struct Codes<4> {
  using Of = Int4;
};

using Scale = Codes<BITS>::Of;

constexpr int SUB_BYTES = 128, SUB = SUB_BYTES * 8 / BITS, X_DEPTH = 64;  // a swizzled row: bytes, inputs of codes, inputs of x
constexpr int BOXES = SUB / X_DEPTH, PIECES = 8 / BITS, GROUPS = SUB / 128;  // of x; instructions of a word; scales of a line
constexpr int WARPS = TILE_LINES / LINES, TILES = X_ROWS / 16, EIGHTS = LINES / 8;
constexpr int OUTPUTS = TILE_LINES / HALVES;  // of a CTA
constexpr int X_BYTES = X_ROWS * SUB_BYTES, X_SUB = BOXES * X_BYTES, W_SUB = TILE_LINES * SUB_BYTES;
constexpr int STAGE = SUBS * (X_SUB + W_SUB);
constexpr int GRAIN = FINE ? 1 : 8, GRAINS = TILE_LINES / GRAIN;  // lines of a scale, and scales of a CTA for 128 inputs
static_assert(X_ROWS % 16 == 0 && TILE_LINES % LINES == 0, "whole instructions");

using Ring = StageRing<STAGE, SUBS, X_SUB, W_SUB>;
using Sums = float[TILES][LINES / 2];

// Asks for the tiles of a product: one thread does.
struct Loader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  int first, present;  // of the outputs, and rows

  __device__ void weights(int step, int stage) const {
    expect_bytes(ring.full_at(stage), SUBS * (present * BOXES * SUB_BYTES + W_SUB));
    for (int sub = 0; sub < SUBS; ++sub) {
      const int column = (step * SUBS + sub) * (SUB_BYTES / 2);  // TMA takes two bytes as a number
      if constexpr (KIND == GATED)
        load_interleaved(ring.weight(stage, sub), weight_map, column, first / 8, ring.full_at(stage), STREAMED);
      else
        load<false>(ring.weight(stage, sub), weight_map, column, first, ring.full_at(stage), 0, STREAMED);
    }
  }

  __device__ void rows(int step, int stage) const {
    for (int box = 0; box < BOXES * SUBS; ++box)
      load<false>(ring.x(stage, 0) + box * X_BYTES, x_map, (step * SUBS * BOXES + box) * X_DEPTH, 0, ring.full_at(stage), 0,
                  KEPT);
  }

  // Weights do not come from the kernel before, so the ring is filled with them while it drains.
  __device__ void run(int steps) const {
    const int ahead = steps < STAGES ? steps : STAGES;
    for (int step = 0; step < ahead; ++step) weights(step, step);
    await_previous();
    for (int step = 0; step < ahead; ++step) rows(step, step);
    int stage = 0;
    unsigned parity = 0;
    for (int step = STAGES; step < steps; ++step) {
      await_phase(ring.empty_at(stage), parity);
      weights(step, stage);
      rows(step, stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
};

// Keeps the scales of a CTA's lines: a row of `GRAINS` for each 128 inputs, or one for all of them.
__device__ __forceinline__ void keep_scales(unsigned* kept, const unsigned* scales, int groups, int row_scales, int shift,
                                            int first, int outputs) {
  for (int at = threadIdx.x; at < groups * GRAINS; at += WARPS * 32) {
    const int in_tile = at % GRAINS * GRAIN, lines = outputs * HALVES;
    const int line = KIND == GATED ? first + in_tile / 16 * 8 + in_tile % 8 + in_tile / 8 % 2 * outputs : first + in_tile;
    kept[at] = line < lines ? Scale::prepared(scales[(size_t)(at / GRAINS) * row_scales + (line >> shift)]) : 0;
  }
  asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
}

__device__ __forceinline__ void load_four(unsigned from, unsigned (&words)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

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
