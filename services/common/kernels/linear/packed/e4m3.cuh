// Weights in eight bits (e4m3) with scales, widened in registers to the bfloat16 numbers that they mean.
//
// `build.cuh` defines SHORT: scales are numbers of bfloat16, else of float32.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"

struct E4m3 {
  // A scale as a CTA keeps it: times 2^120, twice in bfloat16, or in float32.
  static __device__ __forceinline__ unsigned prepared(unsigned scale) {
    const float large = __fmul_rn(__uint_as_float(scale), 1.329227995784916e36f);
    return SHORT ? pair_of(large, large) : __float_as_uint(large);
  }

  unsigned scale;

  __device__ __forceinline__ void open(unsigned kept) { scale = kept; }

  // A code is the upper byte of half a word here: its sign stays, the other bits move to those of bfloat16. So they mean the
  // code's number times 2^-120, and no number of a code is lost, not the least either.
  static __device__ __forceinline__ unsigned shrunk(unsigned codes) {
    return (codes >> 4 & 0x07F007F0u) | (codes & 0x80008000u);
  }

  // Two codes times their scale. One rounding, as of the float32 product of a code and a short scale, which is exact; else both.
  __device__ __forceinline__ unsigned widened(unsigned codes) const {
    unsigned pair = shrunk(codes);
    if constexpr (SHORT) {
      asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(scale));
      return pair;
    }
    const float large = __uint_as_float(scale);
    return pair_of(__fmul_rn(low_of(pair), large), __fmul_rn(high_of(pair), large));
  }

  // The left operand: of a line, inputs 2c, 2c + 1, 2c + 8 and 2c + 9 of sixteen for lane c of four, of which a word has these.
  __device__ __forceinline__ void widen(unsigned codes, int, unsigned (&left)[2]) const {
    left[0] = widened(codes);
    left[1] = widened(codes << 8);
  }
};
