// The softplus of a head's gate, operation by operation that of `head_gates` behind a product that waits for its norm.

#pragma once

#include "approximate.cuh"
#include "bfloat16.cuh"

// As the library of Triton's programs computes it, for numbers from 1 to 2 or NaN.
__device__ __forceinline__ float logarithm(float x) {
  const int exponent = (__float_as_int(x) - 0x3F2AAAAB) & 0xFF800000;
  const float power = __fmul_rn(__int2float_rn(exponent), 1.1920929e-7f);
  const float rest = __fadd_rn(__int_as_float(__float_as_int(x) - exponent), -1.f);
  constexpr unsigned LATER[8] = {0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9,
                                 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000};
  float sum = __uint_as_float(0xBE055027);
#pragma unroll
  for (int each = 0; each < 8; ++each) sum = __fmaf_rn(sum, rest, __uint_as_float(LATER[each]));
  sum = __fmaf_rn(__fmul_rn(rest, sum), rest, rest);
  return x == x ? __fmaf_rn(power, __uint_as_float(0x3F317218), sum) : x;
}

__device__ __forceinline__ float gate_of(unsigned short bits, float by) {
  const float gate = low_of(pair_of(__fmul_rn(__uint_as_float((unsigned)bits << 16), by), 0.f));
  const float power = exp2_approx(__fmul_rn(__fsub_rn(0.f, fabsf(gate)), 1.44269504f));
  return __fadd_rn(fmaxf(gate, 0.f), logarithm(__fadd_rn(power, 1.f)));
}
