// What follows a product in a block, as `sums.root_scale`, `linear_kernel` and `sums.squares` compute it, operation by operation.

#pragma once

#include "approximate.cuh"

__device__ __forceinline__ float root_scale(long long squares, float inverse_depth, float eps) {
  return rsqrt_approx_ftz(__fmaf_rn(__ll2float_rn(squares), __fmul_rn(inverse_depth, 5.9604644775390625e-08f), eps));
}

__device__ __forceinline__ float times_sigmoid(float x, float gate) {
  return div_full(x, __fadd_rn(exp2_approx(__fmul_rn(__fsub_rn(0.f, gate), 1.44269504f)), 1.f));
}

__device__ __forceinline__ float gated(float gate, float up) { return __fmul_rn(times_sigmoid(gate, gate), up); }

__device__ __forceinline__ long long square(float x) {
  return __float2ll_rz(__fadd_rn(__fmul_rn(fminf(__fmul_rn(x, x), 34359738368.f), 16777216.f), 0.5f));
}
