// A ring of stages in shared memory, through which tiles of rows and of a weight stream.

#pragma once

#include "barrier.cuh"
#include "tma.cuh"

// What a stage holds is written and read by TMA and the tensor cores alone, so barriers need no wider fences: those of cluster
// scope would flush and drop L1 at every step.
template <int CLUSTER>
__device__ __forceinline__ void cluster_arrive() {
  if constexpr (CLUSTER > 1) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

template <int CLUSTER>
__device__ __forceinline__ void cluster_wait() {
  if constexpr (CLUSTER > 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Loads eight lines of the one half of a weight beside the same eight of the other, for each eight of a box.
__device__ __forceinline__ void load_interleaved(unsigned to, const TensorMap* map, int depth, int eight, unsigned barrier,
                                                 unsigned long long hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(map), "r"(depth), "r"(0), "r"(0), "r"(eight), "r"(barrier), "l"(hint)
      : "memory");
}

// Stages of so many bytes, each of `SUBS` 64s of depth: all those of rows, then all those of a weight.
template <int STAGE, int SUBS, int X_SUB, int W_SUB>
struct StageRing {
  unsigned tiles, full, empty;

  __device__ unsigned x(int stage, int sub) const { return tiles + stage * STAGE + sub * X_SUB; }
  __device__ unsigned weight(int stage, int sub) const { return tiles + stage * STAGE + SUBS * X_SUB + sub * W_SUB; }
  __device__ unsigned full_at(int stage) const { return full + stage * 8; }
  __device__ unsigned empty_at(int stage) const { return empty + stage * 8; }
};

// Makes a ring's barriers: a full stage waits for one arrival, an empty one for so many. All threads of a cluster call it.
template <int STAGES, int CLUSTER, class Ring>
__device__ __forceinline__ void begin_ring(const Ring& ring, unsigned arrivals) {
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(ring.full_at(stage), 1);
      barrier_init(ring.empty_at(stage), arrivals);
    }
    publish_barriers();
  }
  __syncthreads();
  cluster_arrive<CLUSTER>();
  cluster_wait<CLUSTER>();
}
