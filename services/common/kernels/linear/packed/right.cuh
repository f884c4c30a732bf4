// How a warp multiplies sixteen rows by eight lines of a packed weight, widened in registers, as the right operand of `mma.sync`.
//
// A scheduler has one such warp or two, so a warp waits for each of its own instructions. Codes are read 128 inputs ahead and rows
// 64, and what was read is widened while the 64 before are multiplied.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "warp.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/packed/stages.cuh"

static_assert(X_ROWS == 16 && LINES == 8 && TILE_LINES == WARPS * LINES && BATCHES % 2 == 0, "whole instructions");

using Sums = float[LINES / 2];

// Adds up the whole depth in order. `grouped` is 1 where each 128 inputs have scales of their own.
struct DepthWalk {
  const Ring& ring;
  const unsigned* kept;
  int steps, grouped, own, lane;           // `own`: a lane's line of its CTA
  unsigned left[2][4][4], right[2][4][2];  // of 64 inputs, in turn
  unsigned codes[2][4], raw;               // what was read and is not widened
  Scale scale;

  __device__ __forceinline__ void read_rows(int stage, int batch) {
    const unsigned x = ring.x(stage, 0) + batch * X_BYTES + lane % 16 * SUB_BYTES;
#pragma unroll
    for (int sixteen = 0; sixteen < 4; ++sixteen)
      load_blocks(left[batch % 2][sixteen], x + ((sixteen * 2 + lane / 16) ^ lane % 8) * 16);
  }

  __device__ __forceinline__ void read_codes(int step, int stage, int batch) {
    const unsigned weight = ring.weight(stage, 0) + batch / BOXES * W_SUB + own * SUB_BYTES;
    const int side = batch % BOXES / PIECES;
    if (batch % PIECES == 0) load_words(codes[batch / PIECES % 2], weight + ((lane % 4 * 2 + side) ^ lane / 4) * 16);
    if (batch % 2 == 0) raw = kept[(step * (BATCHES / 2) + batch / 2) * grouped * GRAINS + own / GRAIN];
  }

  __device__ __forceinline__ void widen(int batch) {
    if (batch % 2 == 0) scale.open(raw);
#pragma unroll
    for (int sixteen = 0; sixteen < 4; ++sixteen)
      scale.widen(codes[batch / PIECES % 2][batch % PIECES * WORDS + sixteen / PIECES], sixteen % PIECES,
                  right[batch % 2][sixteen]);
  }

  __device__ __forceinline__ void begin(Sums& sums) {
#pragma unroll
    for (int at = 0; at < LINES / 2; ++at) sums[at] = 0.f;
    await_phase(ring.full_at(0), 0);
    __syncwarp();
    read_codes(0, 0, 0);
    widen(0);
    read_codes(0, 0, 1);
    read_rows(0, 0);
  }

  __device__ __forceinline__ void run(Sums& sums) {
    begin(sums);
    int stage = 0, before = 0;
    unsigned parity = 0;
    for (int step = 0; step < steps; ++step) {
      const int now = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
#pragma unroll
      for (int batch = 0; batch < BATCHES; ++batch) {
        const int next = (batch + 1) % BATCHES, later = (batch + 2) % BATCHES;
        if (batch + 2 == BATCHES && step + 1 < steps) {
          await_phase(ring.full_at(stage), parity);
          __syncwarp();
          // Behind a wait, where all products of the step before have begun: what they take has come out of shared memory.
          // Behind its own loads alone a stage would be given back while they wait for their turn. Nobody waits for the last ones.
          if (step > 0 && step - 1 + STAGES < steps && lane == 0) arrive(ring.empty_at(before));
        }
        read_rows(batch + 1 == BATCHES ? stage : now, next);
        read_codes(batch + 2 >= BATCHES ? step + 1 : step, batch + 2 >= BATCHES ? stage : now, later);
        __syncwarp();
#pragma unroll
        for (int sixteen = 0; sixteen < 4; ++sixteen) {
          const unsigned (&both)[2] = right[batch % 2][sixteen];
          multiply(sums, left[batch % 2][sixteen], both[0], both[1]);
        }
        widen(next);
      }
      before = now;
    }
  }
};
