// What a CTA keeps in shared memory of the blocks that it prepares together.

#pragma once

#include "build.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"

// Blocks that are prepared together: of few heads both that drafts may lie in, where memory allows it.
constexpr int TOGETHER = PROGRAMS == 1 ? 2 : 1;
// Neighbouring rows that a warp makes side by side, so that neither's steps wait for one another; registers must allow it.
constexpr int ABREAST = PROGRAMS == 1 ? 2 : 1;

struct alignas(1024) Block {
  unsigned char factors[2][2][LINES_BYTES];  // high and low: lines that multiply a state, K-major
  unsigned char keys[2][2][ROWS_BYTES], queries[2][2][ROWS_BYTES], values[2][2][ROWS_BYTES];
  float base[LINES][PITCH];  // terms that depend on no state; reused for what rows read
  float query[BLOCK][PITCH];
  float lower[BLOCK][SMALL_PITCH], reads[BLOCK][SMALL_PITCH], solved[BLOCK][SMALL_PITCH], half[BLOCK][SMALL_PITCH];
  // What reads and updates weigh keys and values by: halves, and powers of two to be undone.
  half_t weights[2][2][2][BLOCK][HALF_PITCH];
  float back[2][BLOCK];
  int64 units[BLOCK];
  float ill[4][BLOCK], beta[BLOCK], down[BLOCK], since[BLOCK], until[BLOCK];
};

struct Memory {
  Block blocks[TOGETHER];
  float conv[TAPS][3][DIM];
};
static_assert(sizeof(Memory) == MEMORY_BYTES, "as `source.py` counts");
