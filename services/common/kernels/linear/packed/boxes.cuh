// How a stage of codes and one of rows are asked for: a box each, however many swizzled rows it has.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "linear/packed/stages.cuh"

// Loads a box of 64s of some lines, and counts its bytes at a barrier.
__device__ __forceinline__ void load_deep(unsigned to, const TensorMap* map, int line, int sub, unsigned barrier,
                                          unsigned long long hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(0), "r"(line), "r"(sub), "r"(barrier), "l"(hint)
      : "memory");
}

// Loads a box of codes, and one of rows.
struct BoxLoader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  int first;  // of the lines

  __device__ void weights(int step, int stage) const {
    expect_bytes(ring.full_at(stage), STAGE);
    load_deep(ring.weight(stage, 0), weight_map, first, step * SUBS, ring.full_at(stage), STREAMED);
  }

  __device__ void rows(int step, int stage) const {
    load_deep(ring.x(stage, 0), x_map, 0, step * SUBS * BOXES, ring.full_at(stage), KEPT);
  }
};
