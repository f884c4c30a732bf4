// Two numbers in bfloat16, the first in the low half.

#pragma once

__device__ __forceinline__ unsigned pair_of(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ __forceinline__ float low_of(unsigned both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_of(unsigned both) { return __uint_as_float(both & 0xFFFF0000u); }
