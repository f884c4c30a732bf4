// How a warpgroup multiplies its 64 rows. `build.cuh` defines mma(sums, x, weight), one instruction that takes
// 32 bytes of inputs.

#pragma once

#include "build.cuh"
#include "wgmma.cuh"
#include "linear/persistent/sizes.cuh"

template <class Sum>
__device__ __forceinline__ void multiply(Sum (&sums)[LINES / 2], const Ring& ring, int stage, int group) {
  begin_products();
#pragma unroll
  for (int sub = 0; sub < SUBS; ++sub) {
    const unsigned long long x = descriptor(ring.x(stage, sub) + group * 64 * SUB_BYTES);
    const unsigned long long weight = descriptor(ring.weight(stage, sub));
#pragma unroll
    for (int part = 0; part < SUB / 16; ++part) mma(sums, x + 2 * part, weight + 2 * part);  // 32 bytes further
  }
  end_products();
}
