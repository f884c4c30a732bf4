// Powers of two and quotients as `softmax.py` takes them, instruction by instruction.

#pragma once

#include "approximate.cuh"

constexpr float NOTHING = -1e30f;  // the reference of a row that has seen no position
#define INFINITY_F __int_as_float(0x7F800000)

__device__ __forceinline__ float upwards(float x) {
  float whole;
  asm("cvt.rpi.ftz.f32.f32 %0, %1;" : "=f"(whole) : "f"(x));
  return whole;
}

// Two to the power of an integer of at most 0, exactly; below -126 zero.
__device__ __forceinline__ float fade_of(float exponent) {
  return __int_as_float((__float2int_rz(fmaxf(exponent, -127.f)) + 127) << 23);
}
