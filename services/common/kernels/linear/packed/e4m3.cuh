// Weights in eight bits (e4m3) with scales, widened in registers to the bfloat16 numbers that they mean.
//
// `build.cuh` defines SHORT: scales are numbers of bfloat16, else of float32.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"
#include "e4m3.cuh"

struct E4m3 {
  // A scale as a CTA keeps it: times 2^120, twice in bfloat16, or in float32.
  static __device__ __forceinline__ unsigned prepared(unsigned scale) {
    const float large = __fmul_rn(__uint_as_float(scale), 1.329227995784916e36f);
    return SHORT ? pair_of(large, large) : __float_as_uint(large);
  }

  unsigned scale;

  __device__ __forceinline__ void open(unsigned kept) { scale = kept; }

  // Of a half word's codes the bits of one stand in place, and those of the other four places away.
  static __device__ __forceinline__ unsigned first(unsigned codes) { return codes & 0x87F087F0u; }
  static __device__ __forceinline__ unsigned second(unsigned codes) {
    return (codes << 4 & 0x80F080F0u) | (codes >> 4 & 0x07000700u);
  }

  // The left operand: of a line, inputs 2c, 2c + 1, 2c + 8 and 2c + 9 of sixteen for lane c of four, of which a word has these.
  __device__ __forceinline__ void widen(unsigned codes, int, unsigned (&left)[2]) const {
    left[0] = scaled_codes(first(codes), scale);
    left[1] = scaled_codes(second(codes), scale);
  }
};
