// What a block needs that no state enters, in the steps of `prepare.py`; a barrier lies between any two steps.

#pragma once

#include "barrier.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"

// Products of all rows of queries or keys with eight keys, as tensor cores take them.
struct Couples {
  unsigned rows_of[2][DIM / 16][4], keys_of[2][DIM / 32][4];

  template <class Block>
  __device__ __forceinline__ Couples(const Block& block, bool scores, int first, int lane) {
    const unsigned rows = shared_address(scores ? block.queries : block.keys), keys = shared_address(block.keys);
#pragma unroll
    for (int low = 1; low >= 0; --low) {
#pragma unroll
      for (int deep = 0; deep < DIM; deep += 16)
        load_blocks(rows_of[low][deep / 16],
                    rows + low * 2 * ROWS_BYTES + eight_at(ROWS_BYTES, lane % 16, deep + lane / 16 * 8));
#pragma unroll
      for (int deep = 0; deep < DIM; deep += 32)
        load_blocks(keys_of[low][deep / 32],
                    keys + low * 2 * ROWS_BYTES + eight_at(ROWS_BYTES, first + lane % 8, deep + lane / 8 * 8));
    }
  }
  // The terms are high by low, low by high, high by high.
  __device__ __forceinline__ void add(int term, float (&sums)[4]) const {
#pragma unroll
    for (int deep = 0; deep < DIM / 16; ++deep) {
      const unsigned (&by)[4] = keys_of[term == 0][deep / 2];
      multiply_halves(sums, rows_of[term == 1][deep], by[deep % 2 * 2], by[deep % 2 * 2 + 1]);
    }
  }
};

// By what a key decays until a row, of two rows and two neighbouring keys.
template <class Block>
__device__ __forceinline__ void decays_between(const Block& block, int column, int lane, float (&decays)[4]) {
#pragma unroll
  for (int number = 0; number < 4; ++number) {
    const int64 since = block.units[lane / 4 + number / 2 * 8], before = block.units[column + number % 2];
    decays[number] = power(from_units(since - before));
  }
}

// Warps 0 and 1: keys times keys, for the triangle. Warps 2 and 3: queries times keys. Each has eight columns.
template <class Block>
__device__ __forceinline__ void couple(Block& block, int warp, int lane, bool read) {
  const bool scores = warp >= 2;
  const int first = warp % 2 * 8, column = first + lane % 4 * 2;
  if (scores && !read) return;
  const Couples couples(block, scores, first, lane);
  float decays[4], sums[4] = {0.f, 0.f, 0.f, 0.f};
  decays_between(block, column, lane, decays);
#pragma unroll
  for (int term = 0; term < 3; ++term) couples.add(term, sums);
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int row = lane / 4 + below * 8;
#pragma unroll
    for (int each = 0; each < 2; ++each) {
      const int other = column + each;
      const float met = __fmul_rn(__fmul_rn(sums[below * 2 + each], TILE_BACK), decays[below * 2 + each]);
      if (scores)
        block.reads[row][other] = row >= other ? met : 0.f;
      else {
        // The inverse begins as that of blocks of two rows.
        const float lower = row > other ? __fmul_rn(met, block.beta[row]) : 0.f;
        block.lower[row][other] = lower;
        block.solved[row][other] = __fsub_rn(row == other ? 1.f : 0.f, row / 2 == other / 2 ? lower : 0.f);
      }
    }
  }
}

// Joins blocks of `SIZE` rows; a lane has `WIDE` neighbours of the rectangle between two. What is zero is left out.
template <int SIZE, int WIDE, class Block>
__device__ __forceinline__ void join(Block& block, int lane) {
  constexpr int ACROSS = SIZE / WIDE;
  const int start = lane / (SIZE * ACROSS) * 2 * SIZE, row = start + SIZE + lane / ACROSS % SIZE;
  const int column = start + lane % ACROSS * WIDE;
  const bool inside = start < BLOCK;
  float sums[WIDE];
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    const float* from = turn ? &block.half[row][start] : &block.solved[row][start + SIZE];
    const float* by = turn ? &block.solved[start][column] : &block.lower[start + SIZE][column];
    float* to = turn ? &block.solved[row][column] : &block.half[row][column];
#pragma unroll
    for (int each = 0; each < WIDE; ++each) sums[each] = 0.f;
    if (inside) {
#pragma unroll
      for (int at = 0; at < SIZE; ++at) {
        const float left = from[at];
#pragma unroll
        for (int each = 0; each < WIDE; ++each) sums[each] = __fmaf_rn(left, by[at * SMALL_PITCH + each], sums[each]);
      }
#pragma unroll
      for (int each = 0; each < WIDE; ++each) to[each] = turn ? sums[each] : __fsub_rn(0.f, sums[each]);
    }
    __syncwarp();
  }
}

// One warp: the inverse of 1 + the triangle, from blocks of two rows on. Where no row is, it is the identity's.
template <class Block>
__device__ __forceinline__ void invert(Block& block, int real, int lane) {
  if (real > 2) join<2, 1>(block, lane);
  if (real > 4) join<4, 1>(block, lane);
  if (real > 8) join<8, 2>(block, lane);
}

// A number of each thread, or several `apart`: what a read, and an update where one follows, weighs a key and a value by, as
// halves. What reads weigh may be left to others.
template <int COUNT = 1, class Block>
__device__ __forceinline__ void weigh(Block& block, int thread, bool moves, bool reads = true, int apart = 0) {
  const int column = thread % BLOCK;
  const float beta = block.beta[column], by_key = __fsub_rn(0.f, block.since[column]);
  const float by_value = __fmul_rn(block.down[column], TILE_UP);
  float weights[COUNT][2];
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    const int row = (thread + own * apart) / BLOCK;
    weights[own][0] = 0.f, weights[own][1] = __fmul_rn(block.solved[row][column], beta);
  }
#pragma unroll
  for (int four = 0; four < BLOCK; four += 4) {
    if (!reads) break;
    float4 by[COUNT];
#pragma unroll
    for (int own = 0; own < COUNT; ++own)
      by[own] = *reinterpret_cast<const float4*>(&block.reads[(thread + own * apart) / BLOCK][four]);
    const float* solved = &block.solved[four][column];
#pragma unroll
    for (int own = 0; own < COUNT; ++own) {
      float& weight = weights[own][0];
      weight = __fmaf_rn(by[own].x, __fmul_rn(solved[0], beta), weight);
      weight = __fmaf_rn(by[own].y, __fmul_rn(solved[SMALL_PITCH], beta), weight);
      weight = __fmaf_rn(by[own].z, __fmul_rn(solved[SMALL_PITCH * 2], beta), weight);
      weight = __fmaf_rn(by[own].w, __fmul_rn(solved[SMALL_PITCH * 3], beta), weight);
    }
  }
#pragma unroll
  for (int update = 0; update < 2; ++update) {
    if (update ? !moves : !reads) continue;
    float value[COUNT], most[COUNT];
#pragma unroll
    for (int own = 0; own < COUNT; ++own) value[own] = __fmul_rn(weights[own][update], by_value), most[own] = fabsf(value[own]);
#pragma unroll
    for (int step = 1; step < BLOCK; step *= 2) {
#pragma unroll
      for (int own = 0; own < COUNT; ++own) most[own] = fmaxf(most[own], __shfl_xor_sync(~0u, most[own], step));
    }
#pragma unroll
    for (int own = 0; own < COUNT; ++own) {
      const int row = (thread + own * apart) / BLOCK;
      float up, down;
      scales(most[own], up, down);
      unsigned high, low;
      halves(__fmul_rn(__fmul_rn(weights[own][update], by_key), TILE_SCALE), __fmul_rn(value[own], up), high, low);
      block.weights[update][0][0][row][column] = high, block.weights[update][1][0][row][column] = high >> 16;
      block.weights[update][0][1][row][column] = low, block.weights[update][1][1][row][column] = low >> 16;
      if (column == 0) block.back[update][row] = down;
    }
  }
}
