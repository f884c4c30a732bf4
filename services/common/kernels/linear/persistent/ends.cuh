// How a warp ends its rows of a product.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/lines.cuh"

// A lane has two neighbours of a row in each eight lines, of rows r and r + 8.
__device__ __forceinline__ void end_gated(const float (&sums)[LINES / 2], const Ends& ends, int row, int line, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + half * 8;
    if (own >= ends.rows) continue;
    const float root = root_of(ends, own);
#pragma unroll
    for (int eight = 0; eight < HALF / 8; ++eight) {
      const int at = eight * 8 + lane % 4 * 2, gate = eight * 4 + half * 2, up = gate + HALF / 2 * (HALVES - 1);
      const unsigned gates = pair_of(sums[gate], sums[gate + 1]), ups = pair_of(sums[up], sums[up + 1]);
      const float low = gated(__fmul_rn(low_of(gates), root), __fmul_rn(low_of(ups), root));
      const float high = gated(__fmul_rn(high_of(gates), root), __fmul_rn(high_of(ups), root));
      if (at < BAND && line + at < ends.outputs)
        *reinterpret_cast<unsigned*>(ends.out + (size_t)own * ends.outputs + line + at) = pair_of(low, high);
    }
  }
}

// Reads the stream and the norm at a thread's sums, before the products, which hide how long that takes.
__device__ __forceinline__ void read_beside(const Ends& ends, int row, int line, int lane, unsigned (&streams)[LINES / 4],
                                            unsigned (&norms)[LINES / 8]) {
#pragma unroll
  for (int eight = 0; eight < LINES / 8; ++eight) {
    const int in_band = eight * 8 + lane % 4 * 2, at = line + in_band;
    const bool inside = in_band < BAND && at < ends.outputs;
    norms[eight] = inside ? *reinterpret_cast<const unsigned*>(ends.norm + at) : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = row + half * 8;
      const bool known = inside && own < ends.rows;
      streams[eight * 2 + half] = known ? *reinterpret_cast<const unsigned*>(ends.stream + (size_t)own * ends.outputs + at) : 0;
    }
  }
}

// Adds a warp's squares of a row to all others. Integers add up to the same sum in any order.
__device__ __forceinline__ void end_added(const float (&sums)[LINES / 2], const Ends& ends, int row, int line, int lane,
                                          const unsigned (&streams)[LINES / 4], const unsigned (&norms)[LINES / 8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + half * 8;
    long long total = 0;
#pragma unroll
    for (int eight = 0; eight < LINES / 8; ++eight) {
      const int at = eight * 8 + lane % 4 * 2, sum = eight * 4 + half * 2;
      if (own >= ends.rows || at >= BAND || line + at >= ends.outputs) continue;
      const unsigned result = pair_of(sums[sum], sums[sum + 1]), stream = streams[eight * 2 + half];
      const unsigned wide = pair_of(__fadd_rn(low_of(result), low_of(stream)), __fadd_rn(high_of(result), high_of(stream)));
      float low = low_of(norms[eight]), high = high_of(norms[eight]);
      if (ends.offset != 0.f) low = __fadd_rn(low, ends.offset), high = __fadd_rn(high, ends.offset);
      const size_t place = (size_t)own * ends.outputs + line + at;
      *reinterpret_cast<unsigned*>(ends.out + place) = wide;
      *reinterpret_cast<unsigned*>(ends.scaled + place) = pair_of(__fmul_rn(low_of(wide), low), __fmul_rn(high_of(wide), high));
      total += square(low_of(wide)) + square(high_of(wide));
    }
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    if (lane % 4 == 0 && own < ends.rows) atomicAdd(ends.added + own, (unsigned long long)total);
  }
}
