// How a warp ends its lines of a product: of each eight rows a lane has two neighbours, of the lines that it took.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/left.cuh"
#include "linear/packed/left.cuh"

constexpr int OWN = X_ROWS / 4;  // rows of a lane

// The place of the `own`-th row's sum of a part.
__device__ __forceinline__ int sum_at(int own, int part) { return own / 2 * 4 + part * 2 + own % 2; }

// A lane's output of a part, or one behind the last. `first` is the first of the CTA.
__device__ __forceinline__ int output_of(int first, int warp, int part, int lane, int outputs) {
  const int eight = eight_of(warp, part);
  return eight < TILE_LINES ? first + eight / HALVES + lane / 4 : outputs;
}

__device__ __forceinline__ float stream_at(const Ends& ends, int row, int line) {
  return row < ends.rows && line < ends.outputs ? number(ends.stream[(size_t)row * ends.outputs + line]) : 0.f;
}

// What stands beside a lane's sums. Of up to 32 rows it is read before the products, which hide how long that takes: behind them each row
// would wait for the stores of the one before. Of many rows there are no registers for it.
struct Beside {
  static constexpr bool EARLY = X_ROWS <= 32;
  float roots[EARLY ? OWN : 1], streams[EARLY ? OWN : 1][PARTS], norms[PARTS];

  __device__ __forceinline__ void read(const Ends& ends, int first, int warp, int lane) {
#pragma unroll
    for (int part = 0; part < (KIND == ADDED ? PARTS : 0); ++part) {
      const int line = output_of(first, warp, part, lane, ends.outputs);
      norms[part] = line < ends.outputs ? number(ends.norm[line]) : 0.f;
    }
#pragma unroll
    for (int own = 0; own < (EARLY ? OWN : 0); ++own) {
      if constexpr (KIND != ADDED) roots[own] = root_of(ends, row_at(own, lane));
#pragma unroll
      for (int part = 0; part < (KIND == ADDED ? PARTS : 0); ++part)
        streams[own][part] = stream_at(ends, row_at(own, lane), output_of(first, warp, part, lane, ends.outputs));
    }
  }

  __device__ __forceinline__ float root(const Ends& ends, int own, int row) const {
    return EARLY ? roots[own] : root_of(ends, row);
  }
  __device__ __forceinline__ float stream(const Ends& ends, int own, int part, int row, int line) const {
    return EARLY ? streams[own][part] : stream_at(ends, row, line);
  }
};

__device__ __forceinline__ void end_plain(const Sums& sums, const Ends& ends, const Beside& beside, int first, int warp,
                                          int lane) {
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    const int row = row_at(own, lane);
    if (row >= ends.rows) continue;
    const float root = beside.root(ends, own, row);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int line = output_of(first, warp, part, lane, ends.outputs);
      const float result = __fmul_rn(rounded(sums[sum_at(own, part)]), root);
      if (line < ends.outputs) ends.out[(size_t)row * ends.outputs + line] = bits_of(result);
    }
  }
}

__device__ __forceinline__ void end_gated(const Sums& sums, const Ends& ends, const Beside& beside, int first, int warp,
                                          int lane) {
  const int line = output_of(first, warp, 0, lane, ends.outputs);
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    const int row = row_at(own, lane);
    if (row >= ends.rows || line >= ends.outputs) continue;
    const float root = beside.root(ends, own, row);
    const float gate = __fmul_rn(rounded(sums[sum_at(own, 0)]), root), up = __fmul_rn(rounded(sums[sum_at(own, 1)]), root);
    ends.out[(size_t)row * ends.outputs + line] = bits_of(gated(gate, up));
  }
}

// Adds a row's numbers of a lane to the stream, and returns their squares.
__device__ __forceinline__ long long add_row(const Sums& sums, const Ends& ends, const Beside& beside, int own, int first,
                                             int warp, int lane) {
  const int row = row_at(own, lane);
  long long total = 0;
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    const int line = output_of(first, warp, part, lane, ends.outputs);
    if (row >= ends.rows || line >= ends.outputs) continue;
    const size_t place = (size_t)row * ends.outputs + line;
    float norm = beside.norms[part];
    if (ends.offset != 0.f) norm = __fadd_rn(norm, ends.offset);
    const float wide = rounded(__fadd_rn(rounded(sums[sum_at(own, part)]), beside.stream(ends, own, part, row, line)));
    ends.out[place] = bits_of(wide);
    ends.scaled[place] = bits_of(__fmul_rn(wide, norm));
    total += square(wide);
  }
  return total;
}

// Integers add up to the same sum in any order. A CTA adds once: additions to the same few places go one by one.
__device__ __forceinline__ void end_added(const Sums& sums, const Ends& ends, const Beside& beside, int first, int warp,
                                          int lane) {
  __shared__ long long totals_of[WARPS][X_ROWS];
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    long long total = add_row(sums, ends, beside, own, first, warp, lane);
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) total += __shfl_xor_sync(~0u, total, apart);
    if (lane < 4) totals_of[warp][row_at(own, lane)] = total;
  }
  asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
  for (int row = threadIdx.x; row < ends.rows; row += WARPS * 32) {
    long long total = 0;
#pragma unroll
    for (int each = 0; each < WARPS; ++each) total += totals_of[each][row];
    atomicAdd(ends.added + row, (unsigned long long)total);
  }
}
