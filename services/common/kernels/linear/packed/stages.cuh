// A ring in shared memory through which codes and rows come, and the scales beside it.
//
// `build.cuh` defines X_ROWS (of x, those behind the last are zero), TILE_LINES (of a CTA), WARPS that multiply, CLUSTER (CTAs that
// load rows for one another), BITS of a code, SUBS (swizzled rows of codes in a stage), STAGES, FINE (lines have scales of their
// own, else eight neighbours share one) and KIND: what follows the product.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "warp.cuh"
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

// What is widened is the weight's numbers less some bits of the exponent, and so are sums until they are all there.
template <int COUNT>
__device__ __forceinline__ void raise(float (&sums)[COUNT]) {
#pragma unroll
  for (int at = 0; at < COUNT; ++at) sums[at] = BITS == 4 ? __fmul_rn(sums[at], 65536.f) : sums[at];
}

constexpr int SUB_BYTES = 128, SUB = SUB_BYTES * 8 / BITS, X_DEPTH = 64;  // a swizzled row: bytes, inputs of codes, inputs of x
constexpr int BOXES = SUB / X_DEPTH, PIECES = 8 / BITS, GROUPS = SUB / 128;  // of x; instructions of a word; scales of a line
constexpr int OUTPUTS = TILE_LINES / HALVES;                                 // of a CTA
constexpr int BATCHES = SUBS * BOXES, WORDS = 4 / PIECES;  // 64s of a stage, and words of a lane's codes that are of one
constexpr int X_BYTES = X_ROWS * SUB_BYTES, X_SUB = BOXES * X_BYTES, W_SUB = TILE_LINES * SUB_BYTES;
constexpr int STAGE = SUBS * (X_SUB + W_SUB);
constexpr int GRAIN = FINE ? 1 : 8, GRAINS = TILE_LINES / GRAIN;  // lines of a scale, and scales of a CTA for 128 inputs
constexpr int SLICE = X_ROWS / CLUSTER;                           // rows that a CTA loads for all of its cluster
static_assert(SLICE % 8 == 0, "slices begin where the swizzle does");

using Ring = StageRing<STAGE, SUBS, X_SUB, W_SUB>;

// A CTA's ring, and behind it the scales that it keeps.
struct PackedMemory {
  Ring ring;
  unsigned* scales;

  __device__ __forceinline__ explicit PackedMemory(unsigned char* memory) {
    unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
    asm volatile("" : "+r"(tiles));  // kept, not computed at every use
    ring = {tiles, tiles + STAGES * STAGE, tiles + STAGES * STAGE + STAGES * 8};
    scales = reinterpret_cast<unsigned*>(memory + (tiles - shared_address(memory)) + STAGES * (STAGE + 16));
  }
};

// Asks for all stages of a product: one thread does. Weights do not come from the kernel before, so the ring is filled with them
// while it drains.
template <class Loads>
__device__ __forceinline__ void fill_ring(const Loads& of, int steps) {
  const int ahead = steps < STAGES ? steps : STAGES;
  for (int step = 0; step < ahead; ++step) of.weights(step, step);
  await_previous();
  for (int step = 0; step < ahead; ++step) of.rows(step, step);
  int stage = 0;
  unsigned parity = 0;
  for (int step = STAGES; step < steps; ++step) {
    await_phase(of.ring.empty_at(stage), parity);
    of.weights(step, stage);
    of.rows(step, stage);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
}

// Loads a box of 64s of some lines, and counts its bytes at a barrier.
__device__ __forceinline__ void load_deep(unsigned to, const TensorMap* map, int line, int sub, unsigned barrier,
                                          unsigned long long hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(0), "r"(line), "r"(sub), "r"(barrier), "l"(hint)
      : "memory");
}

// Loads tiles: a box of a whole stage, as each box costs the thread that asks for it; but a box of each swizzled row where lines are
// interleaved, and where CTAs of a cluster load rows for all of it.
struct Loader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  int first, rank;  // of the outputs, and which CTA of its cluster this is

  __device__ void weights(int step, int stage) const {
    expect_bytes(ring.full_at(stage), SUBS * (X_SUB + W_SUB));
    if constexpr (KIND != GATED && CLUSTER == 1)
      return load_deep(ring.weight(stage, 0), weight_map, first, step * SUBS, ring.full_at(stage), STREAMED);
    for (int sub = 0; sub < SUBS; ++sub) {
      const int column = (step * SUBS + sub) * (SUB_BYTES / 2);  // TMA takes two bytes as a number
      if constexpr (KIND == GATED)
        load_interleaved(ring.weight(stage, sub), weight_map, column, first / 8, ring.full_at(stage), STREAMED);
      else
        load<false>(ring.weight(stage, sub), weight_map, column, first, ring.full_at(stage), 0, STREAMED);
    }
  }

  __device__ void rows(int step, int stage) const {
    if constexpr (CLUSTER == 1) return load_deep(ring.x(stage, 0), x_map, 0, step * SUBS * BOXES, ring.full_at(stage), KEPT);
    for (int box = 0; box < BOXES * SUBS; ++box)
      load<(CLUSTER > 1)>(ring.x(stage, box / BOXES) + box % BOXES * X_BYTES + rank * SLICE * SUB_BYTES, x_map,
                          (step * SUBS * BOXES + box) * X_DEPTH, rank * SLICE, ring.full_at(stage), (1u << CLUSTER) - 1, KEPT);
  }
};

// Keeps the scales of a CTA's lines: a row of `GRAINS` for each 128 inputs, or one for all of them. All come at once: a thread that
// waited for each of its own would take longer than the ring does to fill.
__device__ __forceinline__ void keep_scales(unsigned* kept, const unsigned* scales, int groups, int row_scales, int shift,
                                            int first, int outputs) {
  constexpr int THREADS = WARPS * 32;
  unsigned grain = threadIdx.x % GRAINS, group = threadIdx.x / GRAINS;
  for (int at = threadIdx.x; at < groups * GRAINS; at += THREADS) {
    const unsigned in_tile = grain * GRAIN;
    const int line = first + (KIND == GATED ? in_tile / 16 * 8 + in_tile % 8 + in_tile / 8 % 2 * outputs : in_tile);
    copy_word(shared_address(kept + at), scales + (size_t)group * row_scales + (line >> shift), line < outputs * HALVES);
    grain += THREADS % GRAINS, group += THREADS / GRAINS;
    if (grain >= GRAINS) grain -= GRAINS, ++group;
  }
  await_copies();
  for (int at = threadIdx.x; at < groups * GRAINS; at += THREADS) kept[at] = Scale::prepared(kept[at]);
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
