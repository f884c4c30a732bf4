// Columns of a state and one block: what its lines find, and what moves the state.
//
// Four warps have 16 columns each and keep them in registers. All sums are those of `scan.py`, in its order.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "wgmma.cuh"
#include "gated_delta/chunks/pipe.cuh"
#include "gated_delta/rounds/arithmetic.cuh"

// Where a lane's numbers begin: its columns are neighbours, for which row of an operand a column is does not matter.
__device__ __forceinline__ int state_at(int lane) { return lane % 4 * 2 * DIM + lane / 4 * 2; }

__device__ __forceinline__ void load_state(const float* state, bool there, float (&x)[DIM / 2]) {
#pragma unroll
  for (int pair = 0; pair < DIM / 4; ++pair) {
    const int depth = pair / 2 * 8 + pair % 2, number = pair / 2 * 4 + pair % 2;
    const float2 both = there ? *reinterpret_cast<const float2*>(state + depth * DIM) : make_float2(0.f, 0.f);
    x[number] = both.x, x[number + 2] = both.y;
  }
}

__device__ __forceinline__ void store_state(float* state, const float (&x)[DIM / 2]) {
#pragma unroll
  for (int pair = 0; pair < DIM / 4; ++pair) {
    const int depth = pair / 2 * 8 + pair % 2, number = pair / 2 * 4 + pair % 2;
    *reinterpret_cast<float2*>(state + depth * DIM) = make_float2(x[number], x[number + 2]);
  }
}

__device__ __forceinline__ float most_of_four_lanes(float most) {
  most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
  return fmaxf(most, __shfl_xor_sync(~0u, most, 2));
}

// Columns as operands: their halves, and what their products are multiplied by.
struct Operand {
  unsigned high[STEPS][4], low[STEPS][4];
  float up[2], down[2];

  __device__ __forceinline__ void weigh(const float (&x)[DIM / 2]) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      float most[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int eight = 0; eight < DIM / 8; ++eight)
        most[eight % 4] = fmaxf(most[eight % 4], fmaxf(fabsf(x[eight * 4 + below * 2]), fabsf(x[eight * 4 + below * 2 + 1])));
      scales(most_of_four_lanes(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]))), up[below], down[below]);
    }
  }

  __device__ __forceinline__ void take(const float (&x)[DIM / 2], int step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int number = (step * 4 + part) * 2;
      halves(__fmul_rn(x[number], up[part % 2]), __fmul_rn(x[number + 1], up[part % 2]), high[step][part], low[step][part]);
      // Made in this order, so that the first products do not wait for the last operands.
      asm volatile("" : "+r"(high[step][part]), "+r"(low[step][part]));
    }
  }
};

__device__ __forceinline__ unsigned long long lines_at(const Stage& stage, bool rest, int step) {
  return descriptor(shared_address(stage.factors[step / 4]) + (rest ? LINES : 0) * PANEL_BYTES) + step % 4 * 2;
}

// Low by high, whose operands are made meanwhile, high by low, high by high.
__device__ __forceinline__ void multiply_lines(float (&found)[LINES / 2], Operand& own, const float (&x)[DIM / 2],
                                               const Stage& stage) {
#pragma unroll
  for (int number = 0; number < LINES / 2; ++number) found[number] = 0.f;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    own.take(x, step);
    begin_products();
    multiply_32(found, own.low[step], lines_at(stage, false, step), step > 0);
  }
#pragma unroll
  for (int step = 0; step < STEPS; ++step) multiply_32(found, own.high[step], lines_at(stage, true, step), 1);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) multiply_32(found, own.high[step], lines_at(stage, false, step), 1);
  end_products();
  await_products<0>();
  hold(found);
}

// Where a lane's numbers of a base begin; those of the next line lie at `next_line`.
__device__ __forceinline__ int base_at(int warp, int lane) {
  const int column = warp * 16 + lane / 4 * 2, line = lane % 4 * 2;
  return column / 32 * (LINES * PANEL_BYTES) + line * PANEL_BYTES + ((column % 32 / 4 ^ line) << 4) + column % 4 * 4;
}
__device__ __forceinline__ int next_line(int at) { return (at ^ 16) + PANEL_BYTES; }

// Adds what no state enters to 16 lines from `first` on.
__device__ __forceinline__ void add_base(float* sums, const float (&down)[2], const Stage& stage, int first, int at) {
#pragma unroll
  for (int pair = 0; pair < BLOCK / 4; ++pair) {
    const int number = pair / 2 * 4 + pair % 2, line = (first + pair / 2 * 8) * PANEL_BYTES;
    const unsigned char* from = stage.base[0] + line + (pair % 2 ? next_line(at) : at);
    const float2 base = *reinterpret_cast<const float2*>(from);
    sums[number] = __fadd_rn(__fmul_rn(sums[number], down[0]), base.x);
    sums[number + 2] = __fadd_rn(__fmul_rn(sums[number + 2], down[1]), base.y);
  }
}

// Starts keys times updates, for which the first 16 lines are taken apart.
__device__ __forceinline__ void start_moves(float (&moves)[DIM / 2], const float* found, float (&down)[2], const Stage& stage,
                                            int lane) {
  float update[2][4], until[4];
#pragma unroll
  for (int part = 0; part < 4; ++part) until[part] = stage.rates[part / 2 * 8 + lane % 4 * 2 + part % 2];
  unsigned high[4], low[4];
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    float most = 0.f, up;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      update[below][part] = __fmul_rn(found[part / 2 * 4 + below * 2 + part % 2], until[part]);
      most = fmaxf(most, fabsf(update[below][part]));
    }
    scales(most_of_four_lanes(most), up, down[below]);
#pragma unroll
    for (int part = 0; part < 4; ++part) update[below][part] = __fmul_rn(update[below][part], up);
  }
#pragma unroll
  for (int part = 0; part < 4; ++part)
    halves(update[part % 2][part / 2 * 2], update[part % 2][part / 2 * 2 + 1], high[part], low[part]);
  const unsigned long long keys = columns_at(shared_address(stage.keys[0])), rest = keys + (BLOCK * PANEL_BYTES >> 4);
  begin_products();
  multiply_128(moves, low, keys, 0);
  multiply_128(moves, high, rest, 1);
  multiply_128(moves, high, keys, 1);
  end_products();
}

// While products are under way: not before they begin.
__device__ __forceinline__ void decay(float (&x)[DIM / 2], float whole) {
  hold(x);
#pragma unroll
  for (int number = 0; number < DIM / 2; ++number) x[number] = __fmul_rn(x[number], whole);
}

__device__ __forceinline__ void add_moves(float (&x)[DIM / 2], const float (&moves)[DIM / 2], const float (&down)[2]) {
#pragma unroll
  for (int number = 0; number < DIM / 2; ++number)
    x[number] = __fadd_rn(x[number], __fmul_rn(moves[number], down[number / 2 % 2]));
}

// Stores what rows of the span from `first_row` on read.
__device__ __forceinline__ void store_reads(float* out, const float* found, int first_row, int rows, int features, int lane) {
#pragma unroll
  for (int pair = 0; pair < BLOCK / 4; ++pair) {
    const int row = first_row + pair / 2 * 8 + lane % 4 * 2 + pair % 2, number = pair / 2 * 4 + pair % 2;
    if (row >= 0 && row < rows)
      *reinterpret_cast<float2*>(out + row * features) = make_float2(found[number], found[number + 2]);
  }
}
