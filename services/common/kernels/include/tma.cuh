// The tensor memory accelerator (TMA): boxes of matrices are copied beside a program's other work.

#pragma once

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// How long L2 keeps what was read: evicted first, as usual, or last.
constexpr unsigned long long STREAMED = 0x12F0000000000000ull, USED = 0x1000000000000000ull, KEPT = 0x14F0000000000000ull;

__device__ __forceinline__ bool elected() {
  unsigned chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen != 0;
}

// Loads a box, and counts its bytes at a barrier: of this CTA, or of every CTA in `mask` and into the same place there.
template <bool SHARED>
__device__ __forceinline__ void load(unsigned to, const TensorMap* map, int depth, int line, unsigned barrier,
                                     unsigned short mask, unsigned long long hint) {
  if constexpr (SHARED) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
        "l"(map), "r"(depth), "r"(line), "r"(barrier), "h"(mask), "l"(hint)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(depth), "r"(line), "r"(barrier), "l"(hint)
        : "memory");
  }
}
