// Rows as the recurrence takes them, neighbours side by side so that no row's steps wait for one another's. What a row of
// `rows.cu` goes through, in that order.

#pragma once

#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/many/pair.cuh"
#include "gated_delta/rounds/many/projections.cuh"
#include "gated_delta/rounds/rows.cuh"

// Rows of a part that a warp makes side by side: few, so that all warps have some.
constexpr int ABREAST = 2;

// What a part is convolved with; a lane has four channels.
struct Weights {
  float4 taps[TAPS];

  __device__ __forceinline__ Weights(const RoundPair& pair, int part, int lane) {
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) taps[tap] = *reinterpret_cast<const float4*>(&pair.conv[tap][part][lane * 4]);
  }
};

// Squares of a row with a number that is limited, or is none, have at least this sum.
constexpr int64 LARGEST_UNITS = (int64)(LARGEST * LARGEST) << 30;

// The larger one; no number where one of them is none.
__device__ __forceinline__ float larger(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}

// Convolves rows from `row` on; those of the span are kept in the ring as they were projected.
__device__ __forceinline__ void convolve(RoundPair& pair, const DeltaSpan& span, const Place& place, int part, int row,
                                         int until, int lane, float (&x)[ABREAST][4]) {
  const Weights weights(pair, part, lane);
  uint2 raw[ABREAST + TAPS - 1];
#pragma unroll
  for (int each = 0; each < ABREAST + TAPS - 1; ++each)
    raw[each] = *reinterpret_cast<const uint2*>(&pair.raw[part][row + each][lane * 4]);
  const bool keeps = part >= 2 || span.keeps_keys;
  const int column = span.channel(part) + lane * 4;
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) {
    if (keeps && row + own < until && place.start + row + own >= span.length)
      *reinterpret_cast<uint2*>(span.kept_row(place.turn + row + own) + column) = raw[TAPS - 1 + own];
    x[own][0] = x[own][1] = x[own][2] = x[own][3] = 0.f;
  }
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) {
#pragma unroll
    for (int own = 0; own < ABREAST; ++own) add_tap(x[own], raw[tap + own], weights.taps[tap]);
  }
}

// Whether a number is none. What is activated is a number where it was one before.
__device__ __forceinline__ bool ill(const float (&x)[4]) {
  float nothing = 0.f;
#pragma unroll
  for (int each = 0; each < 4; ++each) nothing = __fmaf_rn(x[each], 0.f, nothing);
  return nothing != 0.f;
}

// Rows of queries that nobody reads: all that is asked of them is whether they are numbers. Tells whether one is none.
__device__ __forceinline__ bool check_queries(RoundPair& pair, const DeltaSpan& span, const Place& place, int row, int until,
                                              int lane) {
  float x[ABREAST][4];
  convolve(pair, span, place, 0, row, until, lane, x);
  bool any = false;
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) {
    const bool broken = __any_sync(~0u, ill(x[own]));
    if (row + own >= until) break;
    if (lane == 0) pair.own[0].ill[0][row + own] = broken ? nan() : 0.f;
    any |= broken;
  }
  return any;
}

// Rows of queries (part 0) or keys from `row` on, as many as are made side by side and lie before `until`. Tells whether
// one is no number.
__device__ __forceinline__ bool make_directions(RoundPair& pair, const DeltaSpan& span, const Place& place, int part, int turn,
                                                int row, int until, int lane) {
  PairBlock block(pair, 0, turn);
  float x[ABREAST][4];
  bool broken[ABREAST];
  convolve(pair, span, place, part, row, until, lane, x);
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) broken[own] = activate(x[own]);
  int64 units[ABREAST];
  uint2 high[ABREAST], low[ABREAST];
  bool large = false, any = false;
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) units[own] = squares(x[own]);
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) units[own] = sum_of_warp(units[own]), large |= units[own] >= LARGEST_UNITS;
  if (large) {
#pragma unroll
    for (int own = 0; own < ABREAST; ++own) broken[own] = __any_sync(~0u, broken[own]), limit(x[own], 1.f);
  }
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) {
    const float by = __fmul_rn(by_length(units[own]), part ? 1.f : span.scale);
#pragma unroll
    for (int each = 0; each < 4; ++each) x[own][each] = __fmul_rn(x[own][each], by);
    take_halves(x[own], TILE_SCALE, high[own], low[own]);
  }
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) {
    if (row + own >= until) break;
    put_halves(part ? block.keys : block.queries, row + own, lane * 4, high[own], low[own]);
    if (part == 0)
      *reinterpret_cast<float4*>(&block.query[row + own][lane * 4]) = make_float4(x[own][0], x[own][1], x[own][2], x[own][3]);
    broken[own] &= large, any |= broken[own];
    if (lane == 0) block.ill[part][row + own] = broken[own] ? nan() : 0.f;
  }
  return any;
}

// Rows of a head's values (part 2, or 3 of the second head), likewise.
__device__ __forceinline__ void make_values(RoundPair& pair, const DeltaSpan& span, const Place& place, int part, int turn,
                                            int row, int until, int lane) {
  PairBlock block(pair, part - 2, turn);
  float x[ABREAST][4], down[ABREAST];
  bool broken[ABREAST];
  convolve(pair, span, place, part, row, until, lane, x);
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) broken[own] = activate(x[own]);
  uint2 high[ABREAST], low[ABREAST];
  float most[ABREAST];
  bool ill = false;
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) {
    most[own] = larger(larger(fabsf(x[own][0]), fabsf(x[own][1])), larger(fabsf(x[own][2]), fabsf(x[own][3])));
    // Bits of numbers that are not negative are in their order, and behind them those of what is none.
    most[own] = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most[own])));
    broken[own] = !finite(most[own]), ill |= broken[own];
  }
  if (ill) {
#pragma unroll
    for (int own = 0; own < ABREAST; ++own) {
      const float own_most = largest(x[own], broken[own]);
      most[own] = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(own_most)));
    }
  }
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) {
    float up;
    scales(most[own], up, down[own]);
    take_halves(x[own], up, high[own], low[own]);
  }
#pragma unroll
  for (int own = 0; own < ABREAST; ++own) {
    if (row + own >= until) break;
    put_halves(block.values, row + own, lane * 4, high[own], low[own]);
    if (lane == 0) block.down[row + own] = down[own], block.ill[2][row + own] = broken[own] ? nan() : 0.f;
  }
}
