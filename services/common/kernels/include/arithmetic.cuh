// What follows a product in a block, as `sums.root_scale`, `linear_kernel` and `sums.squares` compute it, operation by operation.

#pragma once

__device__ __forceinline__ float root_scale(long long squares, float inverse_depth, float eps) {
  float root;
  const float mean = __fmaf_rn(__ll2float_rn(squares), __fmul_rn(inverse_depth, 5.9604644775390625e-08f), eps);
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(mean));
  return root;
}

__device__ __forceinline__ float times_sigmoid(float x, float gate) {
  float power, quotient;
  asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(__fmul_rn(__fsub_rn(0.f, gate), 1.44269504f)));
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(__fadd_rn(power, 1.f)));
  return quotient;
}

__device__ __forceinline__ float gated(float gate, float up) { return __fmul_rn(times_sigmoid(gate, gate), up); }

__device__ __forceinline__ long long square(float x) {
  return __float2ll_rz(__fadd_rn(__fmul_rn(fminf(__fmul_rn(x, x), 34359738368.f), 16777216.f), 0.5f));
}
