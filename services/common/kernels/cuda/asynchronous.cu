// How copies and products that run beside a program's other work are started and awaited, and launches that overlap.

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// How long the second cache keeps what was read: evicted first, as usual, or last.
constexpr unsigned long long STREAMED = 0x12F0000000000000ull, USED = 0x1000000000000000ull, KEPT = 0x14F0000000000000ull;

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

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

// Ends the kernel with an error. A trap would end it too, but with one the compiler gives no warpgroup more registers than
// a CTA's threads have on average.
__device__ __forceinline__ void fail() { asm volatile("st.global.u32 [%0], %1;" ::"l"(0ull), "r"(0) : "memory"); }

// A phase that never ends is a defect: the kernel then fails, it does not hang.
__device__ __forceinline__ void await_phase(unsigned barrier, unsigned parity) {
  for (unsigned tries = 0; !passed(barrier, parity); ++tries) {
    if (tries == 1u << 24) fail();
  }
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

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
