// How a warp multiplies sixteen lines of an expert by a row, a stage of inputs after the other.

#pragma once

#include "experts/alone/sizes.cuh"
#include "barrier.cuh"
#include "e4m3.cuh"
#include "tma.cuh"
#include "warp.cuh"

struct RowRing {
  unsigned memory;  // all of a CTA's, shared

  __device__ unsigned slot(int stage) const { return memory + stage * SLOT; }
  __device__ unsigned full(int stage) const { return memory + BARRIERS_AT + stage * 16; }
  __device__ unsigned empty(int stage) const { return full(stage) + 8; }
};

// Has a map at hand before its first load.
__device__ __forceinline__ void fetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Loads eight lines of a gate beside the same eight of what it gates, for each eight of a band.
__device__ __forceinline__ void load_gated(unsigned to, const TensorMap* map, int depth, int eight, int expert,
                                           unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(map), "r"(depth), "r"(0), "r"(eight), "r"(expert), "r"(barrier), "l"(STREAMED)
      : "memory");
}

// A stage's inputs of a warp's lines and of the row, as lanes multiply them. All columns of the right operand are the row, so
// lanes of a column read the same.
struct StageOperands {
  unsigned lines[4][4];  // of sixteen inputs each; of codes: of both lines of a lane, of both halves of their 128
  uint2 row[INPUTS / 16];

  __device__ __forceinline__ void read(unsigned from, const unsigned* words, int lane) {
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      if constexpr (CODED)
        load_words(lines[at], from + (lane / 4 + at % 2 * 8) * ROW + ((lane % 4 * 2 + at / 2) ^ lane / 4) * 16);
      else
        load_blocks(lines[at], from + lane % 16 * ROW + ((at * 2 + lane / 16) ^ lane % 8) * 16);
    }
#pragma unroll
    for (int at = 0; at < INPUTS / 16; ++at) row[at] = *reinterpret_cast<const uint2*>(words + at * 8 + lane % 4 * 2);
  }

  // In order of inputs; `scales` are those of a lane's two lines.
  __device__ __forceinline__ void add_to(float (&sums)[4], uint2 scales) const {
#pragma unroll
    for (int at = 0; at < INPUTS / 16; ++at) {
      if constexpr (CODED) {
        const unsigned first = lines[at / 4 * 2][at % 4], second = lines[at / 4 * 2 + 1][at % 4];
        const unsigned left[4] = {scaled_codes(upper_codes(first), scales.x), scaled_codes(upper_codes(second), scales.y),
                                  scaled_codes(lower_codes(first), scales.x), scaled_codes(lower_codes(second), scales.y)};
        multiply(sums, left, row[at].x, row[at].y);
      } else {
        multiply(sums, lines[at], row[at].x, row[at].y);
      }
    }
  }
};

// A lane has the scales of a stage: those of the first eight of a warp's lines, and of the others.
struct StageScales {
  uint2 mine{0, 0};

  __device__ __forceinline__ void read(const unsigned* first, const unsigned* second, int next, int steps, int lane) {
    if (lane < steps) mine = {__ldg(first + lane * next), __ldg(second + lane * next)};
  }
  __device__ __forceinline__ uint2 of(int step) const {
    if constexpr (!CODED) return {0, 0};
    return {__shfl_sync(~0u, mine.x, step), __shfl_sync(~0u, mine.y, step)};
  }
};

// How a warp reads stages of a piece, and gives them back.
struct StageReader {
  const RowRing& ring;
  RingTurn<STAGES>&place, given;
  const unsigned* words;
  int warp, lane;

  __device__ __forceinline__ void take(StageOperands& operands, int step) {
    await_phase(ring.full(place.stage), place.parity);
    operands.read(ring.slot(place.stage) + warp * SIXTEEN * ROW, words + step * (INPUTS / 2), lane);
    place.advance();
  }
  __device__ __forceinline__ void give_back() {
    __syncwarp();
    if (lane == 0) arrive(ring.empty(given.stage));
    given.advance();
  }
  // What a warp without lines does.
  __device__ __forceinline__ void pass(int steps) {
    for (int step = 0; step < steps; ++step) {
      await_phase(ring.full(place.stage), place.parity);
      place.advance();
      give_back();
    }
  }
};

// Adds up a piece in order. While a stage is multiplied the next one is read, so two places hold them in turn.
template <int STEPS>
__device__ __forceinline__ void sum_up(float (&sums)[4], StageReader reader, const StageScales& scales) {
  StageOperands even, odd;
  reader.take(even, 0);
#pragma unroll 1
  for (int step = 0; step < STEPS; step += 2) {
    if (step + 1 < STEPS) reader.take(odd, step + 1);
    even.add_to(sums, scales.of(step));
    reader.give_back();
    if (step + 1 == STEPS) break;
    if (step + 2 < STEPS) reader.take(even, step + 2);
    odd.add_to(sums, scales.of(step + 1));
    reader.give_back();
  }
}
