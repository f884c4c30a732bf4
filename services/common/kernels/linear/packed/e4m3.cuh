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

  // Codes lie so that their bits are those of bfloat16, or are four places away: its sign, and the lowest four of its exponent
  // with the highest three of its fraction. So they mean the code's number times 2^-120, and no number of a code is lost, not the
  // least either. Of half a word there are two.
  static __device__ __forceinline__ unsigned first(unsigned codes) { return codes & 0x87F087F0u; }
  static __device__ __forceinline__ unsigned second(unsigned codes) {
    return (codes << 4 & 0x80F080F0u) | (codes >> 4 & 0x07000700u);
  }

  // Two codes times their scale. One rounding, as of the float32 product of a code and a short scale, which is exact; else both.
  __device__ __forceinline__ unsigned widened(unsigned pair) const {
    if constexpr (SHORT) {
      asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(scale));
      return pair;
    }
    const float large = __uint_as_float(scale);
    return pair_of(__fmul_rn(low_of(pair), large), __fmul_rn(high_of(pair), large));
  }

  // The left operand: of a line, inputs 2c, 2c + 1, 2c + 8 and 2c + 9 of sixteen for lane c of four, of which a word has these.
  __device__ __forceinline__ void widen(unsigned codes, int, unsigned (&left)[2]) const {
    left[0] = widened(first(codes));
    left[1] = widened(second(codes));
  }
};
