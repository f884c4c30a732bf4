// Codes of eight bits (e4m3) become numbers of bfloat16: their bits stand where those of bfloat16 do, its sign, and the lowest four
// of its exponent with the highest three of its fraction. So they mean the code's number times 2^-120, and no number of a code is
// lost, not the least either.
//
// `build.cuh` defines SHORT: scales are numbers of bfloat16, else of float32.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"

// Two codes times their scale, which is raised by 2^120: of a short scale twice. One rounding, as of the float32 product of a code
// and a short scale, which is exact; else both.
__device__ __forceinline__ unsigned scaled_codes(unsigned pair, unsigned scale) {
  if constexpr (SHORT) {
    asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(scale));
    return pair;
  }
  const float large = __uint_as_float(scale);
  return pair_of(__fmul_rn(low_of(pair), large), __fmul_rn(high_of(pair), large));
}

// Of a word's half words the upper codes, and the lower ones.
__device__ __forceinline__ unsigned upper_codes(unsigned codes) { return (codes & 0x80008000u) | (codes >> 4 & 0x07F007F0u); }
__device__ __forceinline__ unsigned lower_codes(unsigned codes) {
  return (codes << 8 & 0x80008000u) | (codes << 4 & 0x07F007F0u);
}
