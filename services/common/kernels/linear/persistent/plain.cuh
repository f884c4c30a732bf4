// How a warp ends its rows of a product that nothing follows.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/persistent/scales.cuh"

// Two neighbours divided by their norm's root, rounded before and after.
__device__ __forceinline__ unsigned divided(float low, float high, float root) {
  const unsigned result = pair_of(low, high);
  return pair_of(__fmul_rn(low_of(result), root), __fmul_rn(high_of(result), root));
}

// Stores four neighbours at a time: of two eights a lane has two of each, and lanes next to one another swap them.
__device__ __forceinline__ void end_plain(const Sum (&sums)[LINES / 2], const Scales& scales, const Ends& ends, int row,
                                          int line, int lane) {
  const bool odd = lane % 2 != 0;
  float roots[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + half * 8;
    const bool waits = ends.squares && own < ends.rows;
    roots[half] = waits ? root_scale(ends.squares[own], ends.inverse_depth, ends.eps) : 1.f;
  }
#pragma unroll
  for (int eight = 0; eight < LINES / 8; eight += 2) {
    float left[4], right[4];
    scales.apply(sums, left, eight, lane);
    scales.apply(sums, right, eight + 1 < LINES / 8 ? eight + 1 : eight, lane);
    const int at = (eight + odd) * 8 + lane % 4 / 2 * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned first = divided(left[half * 2], left[half * 2 + 1], roots[half]);
      const unsigned second = divided(right[half * 2], right[half * 2 + 1], roots[half]);
      const unsigned other = __shfl_xor_sync(~0u, odd ? first : second, 1);
      const int own = row + half * 8;
      if (own < ends.rows && at < BAND && line + at < ends.outputs)
        *reinterpret_cast<uint2*>(ends.out + (size_t)own * ends.outputs + line + at) =
            odd ? make_uint2(other, second) : make_uint2(first, other);
    }
  }
}
