// Single instructions of warps, and stores into other CTAs of a cluster.

#pragma once

#include "span_attention/alone/sizes.cuh"

// Sixteen inputs of a warp's rows by eight columns. Rows behind the eighth are zero.
__device__ __forceinline__ void multiply(float (&sums)[4], unsigned first, unsigned second, unsigned low, unsigned high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %8, %5, %8}, {%6, %7}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(first), "r"(second), "r"(low), "r"(high), "r"(0));
}

// Eight numbers, or zeros where none are there. They are read once, so L1 keeps none.
__device__ __forceinline__ void load_once(unsigned (&pairs)[4], const unsigned short* from, bool there) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(pairs[0]), "=&r"(pairs[1]), "=&r"(pairs[2]), "=&r"(pairs[3])
      : "l"(from), "r"((unsigned)there)
      : "memory");
}

__device__ __forceinline__ void meet(int team) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(TEAM_THREADS) : "memory");
}

// Stores into a CTA's memory, and counts the bytes at a barrier there: no fence is needed.
__device__ __forceinline__ void send(unsigned to, float a, float b, float c, float d, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(__float_as_uint(c)), "r"(__float_as_uint(d)), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void send(unsigned to, float a, float b, unsigned barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to),
               "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(barrier)
               : "memory");
}
