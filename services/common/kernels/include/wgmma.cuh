// Products of a warpgroup (wgmma) that run beside its other work. `build.cuh` has the instructions.

#pragma once

// K-major operand, rows of 128 bytes swizzled in groups of eight rows that lie 1,024 bytes apart.
__device__ __forceinline__ unsigned long long descriptor(unsigned address) {
  constexpr unsigned long long LAYOUT = (1ull << 62) | ((unsigned long long)(1024 >> 4) << 32) | (1ull << 16);
  return LAYOUT | ((address & 0x3FFFF) >> 4);
}

// The same memory as an operand that is turned: panels of 64 columns lie so many bytes apart.
__device__ __forceinline__ unsigned long long turned_descriptor(unsigned address, unsigned panel_bytes) {
  constexpr unsigned long long LAYOUT = (1ull << 62) | ((unsigned long long)(1024 >> 4) << 32);
  return LAYOUT | ((unsigned long long)(panel_bytes >> 4) << 16) | ((address & 0x3FFFF) >> 4);
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until no more than so many groups of products are under way.
template <int LEFT>
__device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Sums belong to the tensor cores until a wait; the compiler must not read or move them before.
template <int COUNT>
__device__ __forceinline__ void hold(float (&sums)[COUNT]) {
#pragma unroll
  for (int number = 0; number < COUNT; ++number) asm volatile("" : "+f"(sums[number])::"memory");
}

template <int COUNT>
__device__ __forceinline__ void hold(int (&sums)[COUNT]) {
#pragma unroll
  for (int number = 0; number < COUNT; ++number) asm volatile("" : "+r"(sums[number])::"memory");
}

// Warpgroups that multiply take registers which one that loads gives up.
template <int COUNT>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
