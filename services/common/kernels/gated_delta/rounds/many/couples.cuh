// Products of rows with keys, and the inverses' beginnings, of both heads: heads that share queries and keys have the same
// products, and differ in rates and decays.

#pragma once

#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/block.cuh"
#include "gated_delta/rounds/many/pair.cuh"

// Warps 0 and 1 make those of keys with keys, warps 2 and 3 those of queries with keys; each has eight columns.
__device__ __forceinline__ void couple_heads(RoundPair& pair, int count, bool read, int turn, int warp, int lane) {
  const bool scores = warp >= 2;
  const int first = warp % 2 * 8, column = first + lane % 4 * 2;
  if (scores && !read) return;
  const Couples couples(PairBlock(pair, 0, turn), scores, first, lane);
  float decays[TOGETHER_HEADS][4], sums[4] = {0.f, 0.f, 0.f, 0.f};
  couples.add(0, sums);
  couples.add(1, sums);
  // Decays are computed while tensor cores are busy.
#pragma unroll
  for (int own = 0; own < TOGETHER_HEADS; ++own) decays_between(PairBlock(pair, own, turn), column, lane, decays[own]);
  couples.add(2, sums);
#pragma unroll
  for (int own = 0; own < TOGETHER_HEADS; ++own) {
    if (own >= count) break;
    PairBlock block(pair, own, turn);
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int row = lane / 4 + below * 8;
      float met[2], solved[2];
#pragma unroll
      for (int each = 0; each < 2; ++each)
        met[each] = __fmul_rn(__fmul_rn(sums[below * 2 + each], TILE_BACK), decays[own][below * 2 + each]);
      if (scores) {
        const float2 both = make_float2(row >= column ? met[0] : 0.f, row > column ? met[1] : 0.f);
        *reinterpret_cast<float2*>(&block.reads[row][column]) = both;
        continue;
      }
      // The inverse begins as that of blocks of two rows.
      const float beta = block.beta[row];
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        met[each] = row > column + each ? __fmul_rn(met[each], beta) : 0.f;
        solved[each] = __fsub_rn(row == column + each ? 1.f : 0.f, row / 2 == column / 2 ? met[each] : 0.f);
      }
      *reinterpret_cast<float2*>(&block.lower[row][column]) = make_float2(met[0], met[1]);
      *reinterpret_cast<float2*>(&block.solved[row][column]) = make_float2(solved[0], solved[1]);
    }
  }
}
