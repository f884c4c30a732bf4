// Weights in four bits with scales and zero points, widened in registers to the bfloat16 numbers that they mean.
//
// `build.cuh` defines SHORT: scales are numbers of bfloat16, else of float16.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"

struct Int4 {
  // A scale's upper half is its number, the lower one its zero point.
  static __device__ __forceinline__ unsigned prepared(unsigned scale) { return scale; }

  unsigned scale, rest, middle, base;

  // A number of float16 is one of bfloat16 and a rest of three bits.
  __device__ __forceinline__ void open(unsigned kept) {
    scale = __byte_perm(kept, 0, 0x3232);
    middle = __byte_perm(kept, 0, 0x1010) | 0x43004300u;
    // 128 twice, of which the compiler does not know that it is the same always: an instruction takes one constant, not two.
    base = middle & 0xFFE0FFE0u;
    if constexpr (!SHORT) {
      float whole;
      asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, high;\n}" : "=f"(whole) : "r"(kept));
      scale = pair_of(whole, whole);
      const float left = __fsub_rn(whole, low_of(scale));
      rest = pair_of(left, left);
    }
  }

  // Two codes, the lowest bits of half words. Behind the bits of 128 they are 128 + code, from which 128 + zero is taken exactly.
  // One rounding follows: a difference has five bits, so its product by the rest is exact, and a fused sum rounds once.
  __device__ __forceinline__ unsigned widened(unsigned codes) const {
    unsigned pair;
    asm("lop3.b32 %0, %1, 0x000F000F, %2, 0xEA;" : "=r"(pair) : "r"(codes), "r"(base));
    asm("sub.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(middle));
    if constexpr (SHORT) {
      asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(scale));
    } else {
      unsigned least;
      asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(pair), "r"(rest));
      asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(scale), "r"(least));
    }
    return pair;
  }

  // As that of `E4m3`; a word has the codes of two instructions, the first of them in the lower byte of half words.
  __device__ __forceinline__ void widen(unsigned codes, int piece, unsigned (&left)[2]) const {
    left[0] = widened(codes >> 8 * piece);
    left[1] = widened(codes >> 8 * piece + 4);
  }
};
