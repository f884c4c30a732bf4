// How a block ends: what its rows read, normed and gated.

#pragma once

#include "barrier.cuh"
#include "bfloat16.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"
#include "gated_delta/rounds/rows.cuh"
#include "gated_delta/rounds/state.cuh"

// Where what a row reads goes: where its bases were.
struct InPlace {
  __device__ __forceinline__ void operator()(float2& base, const float2& read, int) const { base = read; }
};

// What rows read of a block that none follows: its updates find nothing.
template <typename Store = InPlace, class Block>
__device__ __forceinline__ void read_last(Block& block, const State& state, int column, int lane,
                                          const Store& store = Store()) {
  float found[BLOCK / 2];
  state.times(shared_address(block.factors) + BLOCK * PANEL_BYTES, found);
#pragma unroll
  for (int pair = 0; pair < BLOCK / 4; ++pair) {
    const int row = pair / 2 * 8 + lane % 4 * 2 + pair % 2, number = pair / 2 * 4 + pair % 2;
    float2& base = *reinterpret_cast<float2*>(&block.base[BLOCK + row][column]);
    store(base, make_float2(__fadd_rn(found[number], base.x), __fadd_rn(found[number + 2], base.y)), row);
  }
}

// What a block's lines find with their bases, of a block that another one follows; what rows read is stored.
template <int COUNT, class Block>
__device__ __forceinline__ void add_bases(Block& block, float (&found)[COUNT], int column, int lane) {
#pragma unroll
  for (int pair = 0; pair < COUNT / 2; ++pair) {
    const int line = pair / 2 * 8 + lane % 4 * 2 + pair % 2, number = pair / 2 * 4 + pair % 2;
    float2& base = *reinterpret_cast<float2*>(&block.base[line][column]);
    found[number] = __fadd_rn(found[number], base.x), found[number + 2] = __fadd_rn(found[number + 2], base.y);
    if (line >= BLOCK) base = make_float2(found[number], found[number + 2]);
  }
}

// Asks for what gates a warp's rows of the span, and for the norm's weight.
template <int COUNT>
__device__ __forceinline__ void load_ends(const DeltaSpan& span, const half_t* norm, int start, int old, int real,
                                          uint2 (&z)[COUNT], uint2& weight, int warp, int lane) {
  weight = *reinterpret_cast<const uint2*>(norm + lane * 4);
#pragma unroll
  for (int part = 0; part < COUNT; ++part) {
    const int row = old + warp + part * WARPS;
    const half_t* gates = span.into + (start + row - span.length) * span.features + span.kept + span.head * DIM;
    z[part] = row < real ? *reinterpret_cast<const uint2*>(gates + lane * 4) : make_uint2(0, 0);
  }
}

// Norms and gates one row of a head; a lane has four neighbours.
template <class Block>
__device__ __forceinline__ void end_row(const Block& block, int row, int lane, uint2 z, uint2 norm, float eps, half_t* to) {
  const float4 read = *reinterpret_cast<const float4*>(&block.base[BLOCK + row][lane * 4]);
  const float x[4] = {read.x, read.y, read.z, read.w};
  const float gate[4] = {low_of(z.x), high_of(z.x), low_of(z.y), high_of(z.y)};
  const float weight[4] = {low_of(norm.x), high_of(norm.x), low_of(norm.y), high_of(norm.y)};
  const int64 units = sum_of_warp(square(x[0]) + square(x[1]) + square(x[2]) + square(x[3]));
  const float scale = rsqrt_approx_ftz(__fadd_rn(__fmul_rn(from_squares(units), 1.f / DIM), eps));
  float y[4];
#pragma unroll
  for (int each = 0; each < 4; ++each)
    y[each] = __fmul_rn(__fmul_rn(__fmul_rn(x[each], scale), weight[each]), silu(gate[each]));
  *reinterpret_cast<uint2*>(to) = make_uint2(pair_of(y[0], y[1]), pair_of(y[2], y[3]));
}
