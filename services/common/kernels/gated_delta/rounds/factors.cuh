// Factors and bases of a block: its lines for the products with a state. Each warp has 16 columns of keys and of values.

#pragma once

#include "barrier.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"

// What weights find of keys and of values, eight columns at a time. A warp may have 16 columns in each of several parts of
// all; of those whose bit in `values` is not set nobody needs bases.
template <bool READS, int COUNT, class Block>
__device__ __forceinline__ void factor_sums(const Block& block, int warp, int lane, unsigned values,
                                            float (&sums)[COUNT][2][2][4]) {
  constexpr int APART = DIM / COUNT;
  const int column = warp * 16;
  const unsigned weights = shared_address(&block.weights[READS ? 0 : 1][0][0][lane % 16][lane / 16 * 8]);
  constexpr unsigned TILE = BLOCK * HALF_PITCH * 2;
  // Of keys, then of values: weights, what they weigh, and sums of eight columns each.
  unsigned high[2][4], low[2][4], by_high[COUNT][2][4], by_low[COUNT][2][4], at[COUNT];
#pragma unroll
  for (int part = 0; part < COUNT; ++part) at[part] = eight_at(ROWS_BYTES, lane % 16, column + part * APART + lane / 16 * 8);
#pragma unroll
  for (int kind = 0; kind < 2; ++kind) {
    if (kind == 1 && !values) break;
    unsigned tile[COUNT];
#pragma unroll
    for (int part = 0; part < COUNT; ++part) tile[part] = shared_address(kind ? block.values : block.keys) + at[part];
    load_blocks(high[kind], weights + kind * 2 * TILE);
#pragma unroll
    for (int part = 0; part < COUNT; ++part)
      if (kind == 0 || values >> part & 1) load_turned(by_low[part][kind], tile[part] + 2 * ROWS_BYTES);
    load_blocks(low[kind], weights + (kind * 2 + 1) * TILE);
#pragma unroll
    for (int part = 0; part < COUNT; ++part)
      if (kind == 0 || values >> part & 1) load_turned(by_high[part][kind], tile[part]);
  }
  // Small terms first; of keys high by low, of values low by high begins. Four sums are added side by side.
#pragma unroll
  for (int term = 0; term < 3; ++term) {
#pragma unroll
    for (int each = 0; each < 4 * COUNT; ++each) {
      const int own = each / COUNT, part = each % COUNT, kind = own / 2, eight = own % 2;
      if (kind == 1 && !(values >> part & 1)) continue;
      const bool by_rest = term == kind;
      const unsigned (&left)[4] = term == 1 - kind ? low[kind] : high[kind];
      const unsigned (&right)[4] = by_rest ? by_low[part][kind] : by_high[part][kind];
      multiply_halves(sums[part][kind][eight], left, right[eight * 2], right[eight * 2 + 1]);
    }
  }
}

// `READS` lines come behind those of updates. Of each, `eights` tells which of the first eight and the others are used.
template <bool READS, int COUNT, class Block>
__device__ __forceinline__ void store_factors(Block& block, int warp, int lane, unsigned values,
                                              const float (&sums)[COUNT][2][2][4], unsigned eights) {
  constexpr int APART = DIM / COUNT;
  const int column = warp * 16;
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    if (!(eights >> below & 1)) continue;
    const int row = lane / 4 + below * 8, line = row + (READS ? BLOCK : 0);
    const float since = block.since[row], back = block.back[READS ? 0 : 1][row];
    const float ill = block.ill[0][row] + block.ill[1][row] + (block.ill[2][row] + block.ill[3][row]);
#pragma unroll
    for (int each = 0; each < 2 * COUNT; ++each) {
      const int part = each / 2, eight = each % 2, first = column + part * APART + eight * 8;
      const float (&of_keys)[4] = sums[part][0][eight];
      float x = __fmul_rn(of_keys[below * 2], TILE_BACK), y = __fmul_rn(of_keys[below * 2 + 1], TILE_BACK);
      if constexpr (READS) {
        const float2 query = *reinterpret_cast<const float2*>(&block.query[row][first + lane % 4 * 2]);
        x = __fadd_rn(x, __fmul_rn(query.x, since));
        y = __fadd_rn(y, __fmul_rn(query.y, since));
      }
      unsigned upper, rest;
      halves(__fmul_rn(x, TILE_SCALE), __fmul_rn(y, TILE_SCALE), upper, rest);
      unsigned char* to = &block.factors[0][0][0] + eight_at(LINES_BYTES, line, first) + lane % 4 * 4;
      *reinterpret_cast<unsigned*>(to) = upper;
      *reinterpret_cast<unsigned*>(to + 2 * LINES_BYTES) = rest;
      if (!(values >> part & 1)) continue;
      const float (&of_values)[4] = sums[part][1][eight];
      x = __fmul_rn(of_values[below * 2], back), y = __fmul_rn(of_values[below * 2 + 1], back);
      if constexpr (READS) x = __fadd_rn(x, ill), y = __fadd_rn(y, ill);
      *reinterpret_cast<float2*>(&block.base[line][first + lane % 4 * 2]) = make_float2(x, y);
    }
  }
}

template <bool READS, int COUNT = 1, class Block>
__device__ __forceinline__ void factor(Block& block, int warp, int lane, unsigned values = (1u << COUNT) - 1,
                                       unsigned eights = 3) {
  float sums[COUNT][2][2][4] = {};
  factor_sums<READS>(block, warp, lane, values, sums);
  store_factors<READS>(block, warp, lane, values, sums, eights);
}
