// How warpgroups multiply lines of a packed weight, widened in registers, as the left operand of `wgmma`.
//
// `build.cuh` defines mma(sums, lines, rows): one instruction of 64 lines, sixteen inputs and X_ROWS.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "cluster.cuh"
#include "warp.cuh"
#include "wgmma.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/packed/stages.cuh"

// Where each warp has eight lines nobody reads what comes of the other eight of an instruction.
constexpr int PARTS = KIND == GATED || TILE_LINES > WARPS * 8 ? 2 : 1;
constexpr int READS = SUBS * 2;  // of codes, in a stage
// Codes are read one read ahead and scales 128 inputs: a warp of few rows waits for its own reads. FP8 gains by it where its chain is
// as long as its bytes are.
constexpr bool AHEAD = BITS == 4 ? X_ROWS <= 16 : X_ROWS == 16 && KIND != GATED;
constexpr int KEPT_READS = AHEAD ? 2 : 1;
static_assert(WARPS == (TILE_LINES + 32 * PARTS - 1) / (32 * PARTS) * 4 && BATCHES % 2 == 0,
              "whole instructions, in turn from two places");

using Sums = float[X_ROWS / 2];

// The eight lines of a CTA that a warp has in a part, counted in lines. Those of a gate stand beside those that it gates.
__device__ __forceinline__ int eight_of(int warp, int part) {
  return warp / 4 * PARTS * 32 + (KIND == GATED ? warp % 4 * 16 + part * 8 : part * 32 + warp % 4 * 8);
}

// A lane's line of each eight, and what it takes of it.
struct Lines {
  int at[PARTS];
  unsigned codes[KEPT_READS][PARTS][4], raw[PARTS];  // what was read and is not widened
  Scale scales[PARTS];

  // Behind the last line the first one is multiplied, for nobody.
  __device__ __forceinline__ Lines(int warp, int lane) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int eight = eight_of(warp, part);
      at[part] = (eight < TILE_LINES ? eight : 0) + lane / 4;
    }
  }

  // Takes the codes of half a swizzled row of each line, the `half`-th of a stage: sixteen bytes.
  __device__ __forceinline__ void read(unsigned weight, int half, int lane) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      load_words(codes[half % KEPT_READS][part],
                 weight + half / 2 * W_SUB + at[part] * SUB_BYTES + ((lane % 4 * 2 + half % 2) ^ lane / 4) * 16);
  }

  __device__ __forceinline__ void read_scales(const unsigned* kept) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) raw[part] = kept[at[part] / GRAIN];
  }

  // Of these scales, or of those that were read.
  __device__ __forceinline__ void open(const unsigned* kept) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) scales[part].open(AHEAD ? raw[part] : kept[at[part] / GRAIN]);
  }

  // Widens 64 inputs: of each instruction the lines of both parts, of its first eight inputs and of its last.
  __device__ __forceinline__ void widen(unsigned (&left)[4][4], int batch) const {
#pragma unroll
    for (int sixteen = 0; sixteen < 4; ++sixteen) {
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        unsigned wide[2];
        const unsigned (&own)[4] = codes[batch / PIECES % KEPT_READS][part];
        scales[part].widen(own[batch % PIECES * WORDS + sixteen / PIECES], sixteen % PIECES, wide);
        left[sixteen][part] = wide[0], left[sixteen][part + 2] = wide[1];
        asm volatile("" : "+r"(left[sixteen][part]), "+r"(left[sixteen][part + 2])::"memory");
      }
    }
  }
};

__device__ __forceinline__ void begin_at_zero(Sums& sums, unsigned (&left)[2][4][4]) {
#pragma unroll
  for (int at = 0; at < X_ROWS / 2; ++at) sums[at] = 0.f;
  // What nobody reads may be anything. Zeros are made anew for each instruction, which takes a while.
#pragma unroll
  for (int at = 0; at < 32; ++at) {
    if constexpr (AHEAD) asm volatile("" : "=r"(left[at / 16][at / 4 % 4][at % 4]));
    if constexpr (!AHEAD) asm volatile("mov.u32 %0, 0;" : "=r"(left[at / 16][at / 4 % 4][at % 4]));
  }
}

// Says to all who load into it that a warp needs a stage no more.
__device__ __forceinline__ void give_back(const Ring& ring, int stage, int lane) {
  if constexpr (CLUSTER > 1) {
    if (lane < CLUSTER) arrive_at(ring.empty_at(stage), lane);
  } else {
    if (lane == 0) arrive(ring.empty_at(stage));
  }
}

// Adds up the whole depth in order. While 64 inputs are multiplied the next are widened, so two places hold them in turn.
// `grouped` is 1 where each 128 inputs have scales of their own.
__device__ __forceinline__ void sum_up(Sums& sums, const Ring& ring, const unsigned* kept, int steps, int grouped, int warp,
                                       int lane) {
  unsigned left[2][4][4];
  begin_at_zero(sums, left);
  hold(sums);
  Lines lines(warp, lane);
  RingTurn<STAGES> turn;
  int before = 0;
  await_phase(ring.full_at(0), 0);
  __syncwarp();
#pragma unroll
  for (int half = 0; half < KEPT_READS; ++half) lines.read(ring.weight(0, 0), half, lane);
  if (AHEAD) lines.read_scales(kept);
  for (int step = 0; step < steps; ++step) {
    const unsigned long long x = descriptor(ring.x(turn.stage, 0));
    const unsigned weight = ring.weight(turn.stage, 0);
    const int now = turn.stage;
    const bool more = step + 1 < steps;
    turn.advance();
#pragma unroll
    for (int batch = 0; batch < BATCHES; ++batch) {
      if (batch % 2 == 0) lines.open(kept + (step * (BATCHES / 2) + batch / 2) * grouped * GRAINS);
      lines.widen(left[batch % 2], batch);
      begin_products();
      const unsigned long long rows = x + batch * (X_BYTES / 16);
#pragma unroll
      for (int sixteen = 0; sixteen < 4; ++sixteen) mma(sums, left[batch % 2][sixteen], rows + 2 * sixteen);
      end_products();
      if (AHEAD) await_products<1>();
      // All products of the stage before have ended. Nobody waits for the last ones.
      if (AHEAD && batch == 0 && step > 0 && step - 1 + STAGES < steps) give_back(ring, before, lane);
      if (AHEAD && batch % 2 == 0 && (more || batch + 2 < BATCHES))
        lines.read_scales(kept + ((step * BATCHES + batch) / 2 + 1) * grouped * GRAINS);
      if ((batch + 1) % PIECES == 0) {
        const int next = (batch + 1) / PIECES - 1 + KEPT_READS;  // behind what was read
        if (next < READS) {
          lines.read(weight, next, lane);
        } else if (step + 1 < steps) {
          if (next == READS) {
            await_phase(ring.full_at(turn.stage), turn.parity);
            __syncwarp();
          }
          lines.read(ring.weight(turn.stage, 0), next % READS, lane);
        }
      }
      if (!AHEAD) await_products<1>();
      if (!AHEAD && batch == 0 && step > 0 && step - 1 + STAGES < steps) give_back(ring, before, lane);
    }
    before = now;
  }
  await_products<0>();
  hold(sums);
  raise(sums);
}
