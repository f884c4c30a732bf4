// Functions of numbers, operation by operation as the kernels in Triton compute them.
//
// `build.cuh` defines PROGRAMS, CTAs that share a processor, and multiply_16 and the like, wgmmas of 64 rows.

#pragma once

#include "approximate.cuh"

typedef unsigned short half_t;
typedef long long int64;

constexpr int WARPS = 8, WARP = 32, THREADS = WARPS * WARP, BLOCK = 16, DIM = 128, TAPS = 4;
constexpr float TILE_SCALE = 1024.f, TILE_BACK = 1.f / 1048576.f, TILE_UP = 1048576.f;
constexpr float SQUARE_UNITS = 1073741824.f, LARGEST = 5792.f, LOG2_E = 1.44269504f;

__device__ __forceinline__ float nan() { return __int_as_float(0x7FC00000); }
__device__ __forceinline__ float wide(half_t x) { return __uint_as_float((unsigned)x << 16); }
__device__ __forceinline__ bool finite(float x) { return fabsf(x) < __int_as_float(0x7F800000); }

__device__ __forceinline__ float power(float x) { return exp2_approx(__fmul_rn(x, LOG2_E)); }

// Beside 1, a power below the least normal number is nothing, so that it may become zero.
__device__ __forceinline__ float sigmoid(float x) {
  const float r = rsqrt_approx_ftz(__fadd_rn(exp2_approx_ftz(__fmul_rn(x, -LOG2_E)), 1.f));
  return __fmul_rn(r, r);
}

__device__ __forceinline__ float silu(float x) { return __fmul_rn(x, sigmoid(x)); }

__device__ __forceinline__ float softplus(float x) {
  const float y = power(__fsub_rn(0.f, fabsf(x)));
  const float s = div_full(y, __fadd_rn(y, 2.f));
  const float t = __fmul_rn(s, s);
  float series = __fadd_rn(__fmul_rn(t, 1.f / 17.f), 1.f / 15.f);
  series = __fadd_rn(__fmul_rn(t, series), 1.f / 13.f);
  series = __fadd_rn(__fmul_rn(t, series), 1.f / 11.f);
  series = __fadd_rn(__fmul_rn(t, series), 1.f / 9.f);
  series = __fadd_rn(__fmul_rn(t, series), 1.f / 7.f);
  series = __fadd_rn(__fmul_rn(t, series), 1.f / 5.f);
  series = __fadd_rn(__fmul_rn(t, series), 1.f / 3.f);
  const float log = __fadd_rn(s, __fmul_rn(s, __fmul_rn(t, series)));
  return __fadd_rn(fmaxf(x, 0.f), __fadd_rn(log, log));
}

// In multiples of 2^-30: integers add up to the same sum in any order.
__device__ __forceinline__ int64 square(float x) {
  // A power of two times a number is exact: one rounding.
  return __float2ll_rz(__fmaf_rn(fminf(__fmul_rn(x, x), LARGEST * LARGEST), SQUARE_UNITS, 0.5f));
}

__device__ __forceinline__ float from_squares(int64 units) { return __fmul_rn(__ll2float_rn(units), 1.f / SQUARE_UNITS); }

__device__ __forceinline__ int64 decay_units(float g) { return __float2ll_rz(__fmul_rn(fmaxf(g, -262144.f), 1099511627776.f)); }

__device__ __forceinline__ float from_units(int64 units) { return __fmul_rn(__ll2float_rn(units), 1.f / 1099511627776.f); }

// Two numbers as halves of 22 bits: the pair of their upper halves, and of what is left.
__device__ __forceinline__ void halves(float x, float y, unsigned& high, unsigned& low) {
  asm("{\n.reg .b16 a, b;\n.reg .f32 c, d;\n"
      "cvt.rn.f16x2.f32 %0, %3, %2;\n"
      "mov.b32 {a, b}, %0;\ncvt.f32.f16 c, a;\ncvt.f32.f16 d, b;\n"
      "sub.rn.f32 c, %2, c;\nsub.rn.f32 d, %3, d;\n"
      "cvt.rn.f16x2.f32 %1, d, c;\n}"
      : "=&r"(high), "=r"(low)
      : "f"(x), "f"(y));
}

// Powers of two by which a row whose largest number is `most` comes just below 2^15, and by which its products come back.
__device__ __forceinline__ void scales(float most, float& up, float& down) {
  const int bits = min(max(__float_as_int(most) & 0x7F800000, 27 << 23), 253 << 23);
  up = __fmul_rn(__int_as_float((254 << 23) - bits), 16384.f);
  down = __fmul_rn(__int_as_float(bits), 1.f / (16384.f * 1024.f));
}
