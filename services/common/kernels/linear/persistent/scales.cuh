// How sums become a product's numbers.

#pragma once

#include "build.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/lines.cuh"

// Those of bfloat16 are the numbers, and those of codes are scaled while they add up.
struct NoScales {
  __device__ __forceinline__ void read(const float*, const float*, const Ends&, int, int, int) {}

  __device__ __forceinline__ void apply(const float (&sums)[LINES / 2], float (&results)[4], int eight, int) const {
#pragma unroll
    for (int at = 0; at < 4; ++at) results[at] = sums[eight * 4 + at];
  }
};

// Whole sums of numbers in eight bits have scales.
// The scales of a tile's lines, each in one lane of every warp, and those of a lane's two rows.
struct LineScales {
  static constexpr int EACH = (LINES + 31) / 32;
  float lines[EACH], rows[2];

  __device__ __forceinline__ void read(const float* of_lines, const float* of_rows, const Ends& ends, int row, int line,
                                       int lane) {
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
      const int number = each * 32 + lane, half = number / HALF, in_band = number % HALF, at = line + in_band;
      const bool inside = half < HALVES && in_band < BAND && at < ends.outputs;
      lines[each] = inside ? of_lines[at + half * ends.outputs] : 0.f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half] = row + half * 8 < ends.rows ? of_rows[row + half * 8] : 0.f;
  }

  // An eight's results: both scales first, as in `multiply_int8`, then the sum, each product rounded.
  __device__ __forceinline__ void apply(const int (&sums)[LINES / 2], float (&results)[4], int eight, int lane) const {
#pragma unroll
    for (int one = 0; one < 2; ++one) {
      const float scale = __shfl_sync(~0u, lines[eight / 4], eight % 4 * 8 + lane % 4 * 2 + one);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = half * 2 + one;
        results[at] = __fmul_rn(__int2float_rn(sums[eight * 4 + at]), __fmul_rn(scale, rows[half]));
      }
    }
  }
};

template <bool>
struct Numbers {
  using Sum = int;
  using Scales = LineScales;
};

template <>
struct Numbers<true> {
  using Sum = float;
  using Scales = NoScales;
};

using Sum = Numbers<WIDE || GROUPED>::Sum;
using Scales = Numbers<WIDE || GROUPED>::Scales;
