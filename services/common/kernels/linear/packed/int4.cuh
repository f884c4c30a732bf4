// Weights in four bits with scales and zero points, widened in registers to the bfloat16 numbers that they mean.
//
// `build.cuh` defines SHORT: scales are numbers of bfloat16, else of float16.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"

struct Int4 {
  // A scale's upper half is its number, the lower one its zero point.
  static __device__ __forceinline__ unsigned prepared(unsigned scale) { return scale; }

  unsigned scale, middle;
  float large;

  __device__ __forceinline__ void open(unsigned kept) {
    scale = __byte_perm(kept, 0, 0x3232);
    middle = __byte_perm(kept, 0, 0x1010) | 0x43004300u;
    if constexpr (!SHORT)
      asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, high;\n}" : "=f"(large) : "r"(kept));
  }

  // Two codes, the lowest bits of half words. Behind the bits of 128 they are 128 + code, from which 128 + zero is taken exactly.
  // One rounding follows: a code has five bits, so float32 holds its product with any scale.
  __device__ __forceinline__ unsigned widened(unsigned codes) const {
    unsigned pair = (codes & 0x000F000Fu) | 0x43004300u;
    asm("sub.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(middle));
    if constexpr (SHORT) {
      asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(scale));
      return pair;
    }
    return pair_of(__fmul_rn(low_of(pair), large), __fmul_rn(high_of(pair), large));
  }

  // As that of `E4m3`; a word has the codes of two instructions, the first of them in the lower byte of half words.
  __device__ __forceinline__ void widen(unsigned codes, int piece, unsigned (&right)[2]) const {
    right[0] = widened(codes >> 8 * piece);
    right[1] = widened(codes >> 8 * piece + 4);
  }
};
