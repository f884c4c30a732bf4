// A ring in shared memory through which codes and rows come, and the scales beside it.
//
// `build.cuh` defines X_ROWS (of x, those behind the last are zero), TILE_LINES (of a CTA), WARPS that multiply, ACROSS and SHARE
// (CTAs of a cluster that have the same rows, and that have the same lines; they load these for one another), BITS of a code,
// ROW_BYTES of a line's codes that are loaded at a time, SUBS (such rows of codes in a stage), STAGES, FINE (lines have scales of
// their own, else eight neighbours share one) and KIND: what follows the product.

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

constexpr int CLUSTER = ACROSS * SHARE;
constexpr int SUB = ROW_BYTES * 8 / BITS, X_DEPTH = 64, X_ROW_BYTES = X_DEPTH * 2;  // inputs of a row of codes, of one of x
constexpr int BOXES = SUB / X_DEPTH, PIECES = 8 / BITS;                             // of x; instructions of a word
constexpr int OUTPUTS = TILE_LINES / HALVES;                                        // of a CTA
constexpr int X_BYTES = X_ROWS * X_ROW_BYTES, X_SUB = BOXES * X_BYTES, W_SUB = TILE_LINES * ROW_BYTES;
constexpr int STAGE = (SUBS * (X_SUB + W_SUB) + 1023) / 1024 * 1024;           // the swizzle repeats after so many bytes
constexpr int GROUP = 128, GRAIN = FINE ? 1 : 8, GRAINS = TILE_LINES / GRAIN;  // lines of a scale; scales of a CTA's group
constexpr int SLICE = X_ROWS / ACROSS, PART = TILE_LINES / SHARE;              // rows and lines that a CTA loads for others too
static_assert(SLICE % 8 == 0 && PART % (8 * HALVES) == 0, "parts begin where the swizzle does");

using Ring = StageRing<STAGE, SUBS, X_SUB, W_SUB>;

// Asks for the tiles of a product: one thread does.
struct Loader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  int first, rank;  // of the outputs, and which CTA of its cluster this is

  __device__ void weights(int step, int stage) const {
    expect_bytes(ring.full_at(stage), SUBS * (X_SUB + W_SUB));
    const int part = rank % SHARE * PART;
    const unsigned short mask = ((1u << SHARE) - 1) << rank / SHARE * SHARE;
    for (int sub = 0; sub < SUBS; ++sub) {
      const int column = (step * SUBS + sub) * (ROW_BYTES / 2);  // TMA takes two bytes as a number
      const unsigned to = ring.weight(stage, sub) + part * ROW_BYTES;
      if constexpr (KIND == GATED)
        load_interleaved<(SHARE > 1)>(to, weight_map, column, first / 8 + part / 16, ring.full_at(stage), mask, STREAMED);
      else
        load<(SHARE > 1)>(to, weight_map, column, first + part, ring.full_at(stage), mask, STREAMED);
    }
  }

  __device__ void rows(int step, int stage) const {
    constexpr unsigned EVERY = ACROSS > 1 ? ((1u << CLUSTER) - 1) / ((1u << SHARE) - 1) : 1;  // of a cluster that has the rows
    const int slice = rank / SHARE * SLICE;
    for (int box = 0; box < BOXES * SUBS; ++box)
      load<(ACROSS > 1)>(ring.x(stage, box / BOXES) + box % BOXES * X_BYTES + slice * X_ROW_BYTES, x_map,
                         (step * SUBS * BOXES + box) * X_DEPTH, rank % SHARE * X_ROWS + slice, ring.full_at(stage),
                         EVERY << rank % SHARE, KEPT);
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

// Keeps the scales of a CTA's lines: a row of `GRAINS` for each 128 inputs, or one for all of them. All are asked for at once:
// one wait after the other took as long as the product. Of no line there are zeros.
__device__ __forceinline__ void keep_scales(unsigned kept, const unsigned* scales, int groups, int row_scales, int shift,
                                            int first, int outputs) {
  constexpr int TOGETHER = FINE ? 4 : 1, EACH = GRAINS / TOGETHER, BYTES = TOGETHER * 4;
#pragma unroll 4
  for (int at = threadIdx.x; at < groups * EACH; at += WARPS * 32) {
    const int in_tile = at % EACH * GRAIN * TOGETHER, lines = outputs * HALVES;
    const int line = KIND == GATED ? first + in_tile / 16 * 8 + in_tile % 8 + in_tile / 8 % 2 * outputs : first + in_tile;
    const unsigned* from = scales + (size_t)(at / EACH) * row_scales + (line >> shift);
    const int bytes = line < lines ? BYTES : 0;
    if constexpr (FINE)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(kept + at * BYTES), "l"(bytes ? from : scales),
                   "r"(bytes)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(kept + at * BYTES), "l"(bytes ? from : scales),
                   "r"(bytes)
                   : "memory");
  }
  asm volatile("cp.async.wait_all;\nbar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
}

__device__ __forceinline__ unsigned load_one(unsigned from) {
  unsigned word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

__device__ __forceinline__ void load_four(unsigned from, unsigned (&words)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}
