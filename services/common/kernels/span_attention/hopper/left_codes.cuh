// Codes of keys and values as left operands of products, whose columns are rows of queries. They go from tiles of codes into
// registers, and are widened there.
//
// A code and 128 more is a byte. As the bits of bfloat16 it is so many times the least number there is, 2^-133: below 128 it has
// no exponent, and above it the first one, whose numbers lie as close. So a product and a sum, which is exact, give the code times
// a power of two.

#pragma once

#include "build.cuh"
#include "warp.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"

constexpr unsigned BYTES_APART = 0x00FF00FF, MIDDLES = 0x00800080;
constexpr int WHOLE = -6;                                     // 2^127 is the greatest factor: it gives codes times 2^-6
constexpr unsigned WIDEST = 0x7F007F00, MIDDLE = 0xC000C000;  // 2^127, and -128 times 2^-6

__device__ __forceinline__ unsigned scaled(unsigned bytes, unsigned factors, unsigned middles) {
  asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(bytes) : "r"(factors), "r"(middles));
  return bytes;
}

// The first and third, or the second and fourth, of four codes, as bytes that are 128 more. `middles` are MIDDLES.
__device__ __forceinline__ unsigned even_of(unsigned codes, unsigned middles) { return codes & BYTES_APART ^ middles; }
__device__ __forceinline__ unsigned odd_of(unsigned codes, unsigned middles) { return codes >> 8 & BYTES_APART ^ middles; }

// A constant that the assembler knew would take an instruction of its own at each use: `width` is above zero.
__device__ __forceinline__ unsigned middles_of(int width) { return __shfl_sync(~0u, MIDDLES ^ width >> 31, 0); }

// Sixteen codes of each of sixteen keys. A lane has four of a key that lie side by side: inputs of a product are in another order
// than in memory, and those of queries too.
__device__ __forceinline__ void widen_keys(unsigned (&left)[4], unsigned upper, unsigned lower, unsigned middles) {
  left[0] = scaled(even_of(upper, middles), WIDEST, MIDDLE), left[1] = scaled(even_of(lower, middles), WIDEST, MIDDLE);
  left[2] = scaled(odd_of(upper, middles), WIDEST, MIDDLE), left[3] = scaled(odd_of(lower, middles), WIDEST, MIDDLE);
}

// What codes of two values that lie side by side are multiplied by, and what is taken from them. Of exponents above WHOLE the
// rest is a factor of its own.
struct Powers {
  unsigned factors, middles, rest;

  __device__ __forceinline__ Powers(int first, int second)
      : factors(factor(first) | factor(second) << 16),
        middles(middle(first) | middle(second) << 16),
        rest(more(first) | more(second) << 16) {}

 private:
  static __device__ __forceinline__ unsigned factor(int exponent) {
    return exponent == NO_NUMBER ? 0x7FC0u : unsigned(min(exponent, WHOLE) + 133 + 127) << 7;
  }
  static __device__ __forceinline__ unsigned middle(int exponent) {
    return 0x8000u | unsigned(min(exponent, WHOLE) + 7 + 127) << 7;
  }
  static __device__ __forceinline__ unsigned more(int exponent) {
    return exponent == NO_NUMBER ? 0x3F80u : unsigned(max(exponent, WHOLE) - WHOLE + 127) << 7;
  }
};

__device__ __forceinline__ unsigned multiplied(unsigned numbers, unsigned factors) {
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(numbers) : "r"(factors));
  return numbers;
}

// Where a piece of sixteen codes of a line lies in a tile.
__device__ __forceinline__ unsigned piece_at(int line, int piece) { return line * SIZE + ((piece ^ line % 8) << 4); }
