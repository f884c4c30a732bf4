// Weights in eight bits (e4m3) with scales, widened in registers to the bfloat16 numbers that they mean.
//
// `build.cuh` defines SHORT: scales are numbers of bfloat16, else of float32.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"

// A code is the upper byte of half a word here: its sign stays, the other bits move to those of bfloat16. So they mean the code's
// number times 2^-120, and scales are kept times 2^120: no number of a code is lost, not the least either.
__device__ __forceinline__ unsigned shrunk(unsigned codes) { return (codes >> 4 & 0x07F007F0u) | (codes & 0x80008000u); }

// A scale as `widened` takes it: twice in bfloat16, or in float32.
__device__ __forceinline__ unsigned prepared(float scale) {
  const float large = __fmul_rn(scale, 1.329227995784916e36f);
  return SHORT ? pair_of(large, large) : __float_as_uint(large);
}

// Two codes times their scale. One rounding, as of the float32 product of a code and a short scale, which is exact; else both.
__device__ __forceinline__ unsigned widened(unsigned shrunk, unsigned scale) {
  unsigned pair;
  if constexpr (SHORT) {
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(shrunk), "r"(scale));
  } else {
    const float large = __uint_as_float(scale);
    pair = pair_of(__fmul_rn(low_of(shrunk), large), __fmul_rn(high_of(shrunk), large));
  }
  return pair;
}

// Four codes of a line, of inputs 2c, 2c + 1, 2c + 8 and 2c + 9 of sixteen for lane c of four: the right operand.
__device__ __forceinline__ void widen(unsigned codes, unsigned scale, unsigned (&right)[2]) {
  right[0] = widened(shrunk(codes), scale);
  right[1] = widened(shrunk(codes << 8), scale);
}
