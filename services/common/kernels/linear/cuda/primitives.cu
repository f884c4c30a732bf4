// What products that stream tiles through a ring of stages in shared memory are made of.
//
// The build defines before: SUBS, X_SUB, W_SUB and STAGE (bytes of a 64 of depth and of a stage), and CTAs of a CLUSTER.

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

constexpr unsigned long long STREAMED = 0x12F0000000000000ull, KEPT = 0x14F0000000000000ull;  // evict first, evict last

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void expect_bytes(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ bool passed(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// A phase that never ends is a defect: the kernel then fails, it does not hang.
__device__ __forceinline__ void await_phase(unsigned barrier, unsigned parity) {
  for (unsigned tries = 0; !passed(barrier, parity); ++tries) {
    if (tries == 1u << 24) __trap();
  }
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// What a stage holds is written and read by the copy engine and the tensor cores alone, so barriers need no wider fences:
// those of cluster scope would flush and drop the first cache at every step.
__device__ __forceinline__ void cluster_arrive() {
  if constexpr (CLUSTER > 1) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
  if constexpr (CLUSTER > 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ bool elected() {
  unsigned chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen != 0;
}

// Results of the kernel before are complete and visible from here on.
__device__ __forceinline__ void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The next kernel may start; it waits for this one where it needs what this one leaves.
__device__ __forceinline__ void allow_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

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

// Loads eight lines of the one half of a weight beside the same eight of the other, for each eight of a box.
__device__ __forceinline__ void load_interleaved(unsigned to, const TensorMap* map, int depth, int eight, unsigned barrier,
                                                 unsigned long long hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(map), "r"(depth), "r"(0), "r"(0), "r"(eight), "r"(barrier), "l"(hint)
      : "memory");
}

// K-major operand, rows of 128 bytes swizzled in groups of eight rows that lie 1,024 bytes apart.
__device__ __forceinline__ unsigned long long descriptor(unsigned address) {
  constexpr unsigned long long LAYOUT = (1ull << 62) | ((unsigned long long)(1024 >> 4) << 32) | (1ull << 16);
  return LAYOUT | ((address & 0x3FFFF) >> 4);
}

struct Ring {
  unsigned tiles, full, empty;

  __device__ unsigned x(int stage, int sub) const { return tiles + stage * STAGE + sub * X_SUB; }
  __device__ unsigned weight(int stage, int sub) const { return tiles + stage * STAGE + SUBS * X_SUB + sub * W_SUB; }
  __device__ unsigned full_at(int stage) const { return full + stage * 8; }
  __device__ unsigned empty_at(int stage) const { return empty + stage * 8; }
};
