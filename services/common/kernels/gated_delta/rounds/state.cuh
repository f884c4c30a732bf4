// Columns of a head's state: a warp has 16 of them, as operands in registers; a lane has two, at every
// fourth pair of depth.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "wgmma.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"

constexpr int STEPS = DIM / 16, LOADED = 8, EARLY = PROGRAMS > 1 ? 0 : 32;

struct State {
  unsigned high[STEPS][4], low[STEPS][4];
  float down[2];

  // From numbers in the order of a product's sums: eights of depth, both columns, pairs.
  __device__ __forceinline__ void take(const float (&x)[DIM / 2]) {
    float up[2];
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      float most = 0.f;
#pragma unroll
      for (int eight = 0; eight < DIM / 8; ++eight)
        most = fmaxf(most, fmaxf(fabsf(x[eight * 4 + below * 2]), fabsf(x[eight * 4 + below * 2 + 1])));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      scales(most, up[below], down[below]);
    }
#pragma unroll
    for (int part = 0; part < STEPS * 4; ++part) {
      const float by = up[part % 2];
      halves(__fmul_rn(x[part * 2], by), __fmul_rn(x[part * 2 + 1], by), high[part / 4][part % 4], low[part / 4][part % 4]);
    }
  }

  // What each of some lines of the factors finds: sums of lines in eights, both columns, pairs.
  template <int COUNT>
  __device__ __forceinline__ void times(unsigned factors, float (&sums)[COUNT]) const {
#pragma unroll
    for (int number = 0; number < COUNT; ++number) sums[number] = 0.f;
    begin_products();
#pragma unroll
    for (int term = 0; term < 3; ++term) {  // low by high, high by low, high by high
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        const unsigned long long by =
            descriptor(factors + (term == 1 ? 2 * LINES_BYTES : 0) + step / 4 * LINES_BYTES) + step % 4 * 2;
        const unsigned (&columns)[4] = term == 0 ? low[step] : high[step];
        if constexpr (COUNT == BLOCK / 2)
          multiply_16(sums, columns, by, term + step > 0);
        else
          multiply_32(sums, columns, by, term + step > 0);
      }
    }
    end_products();
    await_products<0>();
#pragma unroll
    for (int number = 0; number < COUNT; ++number) {
      asm volatile("" : "+f"(sums[number])::"memory");
      sums[number] = __fmul_rn(sums[number], down[number / 2 % 2]);
    }
  }
};

// A lane's columns are neighbours, so that both come at once: which row of an operand a column is does not matter.
template <int COUNT>
__device__ __forceinline__ void load_state(const float* state, bool there, float* x, int first, int lane) {
  const float* own = state + (lane % 4 * 2 * DIM + lane / 4 * 2);
#pragma unroll
  for (int pair = 0; pair < COUNT / 2; ++pair) {
    const int depth = (first / 4 + pair / 2) * 8 + pair % 2, number = pair / 2 * 4 + pair % 2;
    const float2 both = there ? *reinterpret_cast<const float2*>(own + depth * DIM) : make_float2(0.f, 0.f);
    x[number] = both.x, x[number + 2] = both.y;
  }
}

template <int COUNT>
__device__ __forceinline__ void store_state(float* state, const float* x, int first, int lane) {
  float* own = state + (lane % 4 * 2 * DIM + lane / 4 * 2);
#pragma unroll
  for (int pair = 0; pair < COUNT / 2; ++pair) {
    const int depth = (first / 4 + pair / 2) * 8 + pair % 2, number = first + pair / 2 * 4 + pair % 2;
    *reinterpret_cast<float2*>(own + depth * DIM) = make_float2(x[number], x[number + 2]);
  }
}

// A 16 x 16 operand from what a lane has of it: rows lane / 4 and 8 below, columns in pairs.
__device__ __forceinline__ void operand(const float (&x)[2][4], unsigned (&high)[4], unsigned (&low)[4]) {
#pragma unroll
  for (int part = 0; part < 4; ++part) halves(x[part % 2][part / 2 * 2], x[part % 2][part / 2 * 2 + 1], high[part], low[part]);
}

// The state after a block, from what its lines found, into `x`; stored where the block is complete. `was` gives the
// state before it in parts: `LOADED` numbers from one on.
template <int COUNT, typename Was, class Block>
__device__ __forceinline__ void advance(const Block& block, const float (&found)[COUNT], float* state, bool complete,
                                        const Was& was, float (&x)[DIM / 2], int lane) {
  float update[2][4], down[2];
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    float most = 0.f, up;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float until = block.until[part / 2 * 8 + lane % 4 * 2 + part % 2];
      update[below][part] = __fmul_rn(found[part / 2 * 4 + below * 2 + part % 2], until);
      most = fmaxf(most, fabsf(update[below][part]));
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    scales(most, up, down[below]);
#pragma unroll
    for (int part = 0; part < 4; ++part) update[below][part] = __fmul_rn(update[below][part], up);
  }
  unsigned high[4], low[4];
  operand(update, high, low);
  const float whole = block.since[BLOCK - 1];
  const unsigned long long keys = columns_at(shared_address(block.keys)), rest = keys + (2 * ROWS_BYTES >> 4);
  begin_products();
  multiply_128(x, low, keys, 0);
  multiply_128(x, high, rest, 1);
  multiply_128(x, high, keys, 1);
  end_products();
  await_products<0>();
  hold(x);
#pragma unroll
  for (int first = 0; first < DIM / 2; first += LOADED) {
    float old[LOADED];
    was(first, old);
#pragma unroll
    for (int each = 0; each < LOADED; ++each) {
      const int number = first + each;
      x[number] = __fadd_rn(__fmul_rn(old[each], whole), __fmul_rn(x[number], down[number / 2 % 2]));
    }
    if (complete) store_state<LOADED>(state, x, first, lane);
  }
}
