// Weights in four bits with scales and zero points, widened in registers to the bfloat16 numbers that they mean, times 2^-16.
//
// Codes are taken as bits of bfloat16 where they lie: up to bit 7 such a number is its bits times 2^-133. What that lacks is part of
// the scale. With 2^16 less a scale is a number of bfloat16, and so are sums, whose every rounding is that of the sum times 2^16.
//
// `build.cuh` defines SHORT: scales are numbers of bfloat16, else of float16; and FUSED: so are zero points times scales.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"

struct Int4 {
  static constexpr float RAISED = 1.6615349947311448e35f;  // 2^117: of 2^133 and 2^-16

  // A scale's upper half is its number, the lower one its zero point; fused, what a product by the scale is less.
  static __device__ __forceinline__ unsigned prepared(unsigned scale) {
    if constexpr (!SHORT) return scale;
    const float whole = high_of(scale), raised = __fmul_rn(whole, RAISED);
    if constexpr (FUSED) return pair_of(__fmul_rn(__fmul_rn(whole, -1.52587890625e-5f), float(scale & 0xFFFFu)), raised);
    return __float_as_uint(raised) | (scale & 0xFFFFu);
  }

  unsigned scales[2], rests[2], less[2];  // of codes from bit 0 and from bit 4

  // A number of float16 is one of bfloat16 and a rest of three bits.
  __device__ __forceinline__ void open(unsigned kept) {
    less[0] = __byte_perm(kept, 0, 0x1010);
    if constexpr (!FUSED) less[1] = less[0] << 4;
    scales[0] = __byte_perm(kept, 0, 0x3232);
    if constexpr (!SHORT) {
      float whole;
      asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, high;\n}" : "=f"(whole) : "r"(kept));
      whole = __fmul_rn(whole, RAISED);
      scales[0] = pair_of(whole, whole);
      const float left = __fsub_rn(whole, low_of(scales[0]));
      rests[0] = pair_of(left, left);
      rests[1] = sixteenth(rests[0]);
    }
    scales[1] = sixteenth(scales[0]);
  }

  static __device__ __forceinline__ unsigned sixteenth(unsigned pair) {
    asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x3D803D80));
    return pair;
  }

  // Two codes in half words. One rounding: a zero point is taken from them exactly, and such a difference has five bits, so its
  // product by the rest is exact, too. A fused sum rounds once.
  __device__ __forceinline__ unsigned widened(unsigned pair, int place) const {
    if constexpr (FUSED) {
      asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(scales[place]), "r"(less[0]));
      return pair;
    }
    asm("sub.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(less[place]));
    if constexpr (SHORT) {
      asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(scales[place]));
    } else {
      unsigned least;
      asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(pair), "r"(rests[place]));
      asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(scales[place]), "r"(least));
    }
    return pair;
  }

  // As that of `E4m3`; a word has the codes of two instructions, the first of them in the lower byte of half words.
  __device__ __forceinline__ void widen(unsigned codes, int piece, unsigned (&left)[2]) const {
    const unsigned of = codes >> 8 * piece;
    left[0] = widened(of & 0x000F000Fu, 0);
    left[1] = widened(of & 0x00F000F0u, 1);
  }
};
