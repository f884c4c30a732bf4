// CTAs of a cluster: who they are, and how they meet and reach one another's memory.

#pragma once

// Which CTA of its cluster this is, and an arrival at another one's barrier.
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Where something lies in the memory of another CTA.
__device__ __forceinline__ unsigned address_at(unsigned address, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// All threads of a cluster come by, then all may send. What they wrote before is not awaited.
__device__ __forceinline__ void come_by() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void go_on() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
