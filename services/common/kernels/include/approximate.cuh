// Powers, quotients and roots in one instruction, as the compiler of Triton's programs takes them. `_ftz`: what is below the
// least normal number is zero.

#pragma once

__device__ __forceinline__ float exp2_approx(float x) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float exp2_approx_ftz(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float div_full(float x, float by) {
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(by));
  return result;
}

__device__ __forceinline__ float rsqrt_approx_ftz(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
