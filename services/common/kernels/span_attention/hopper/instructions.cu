// Single instructions, and what orders them.

// Copies 16 bytes into shared memory beside other work, or as many zeros where none are there.
__device__ __forceinline__ void copy_shared(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void store_shared(unsigned to, uint4 numbers) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(numbers.x), "r"(numbers.y), "r"(numbers.z),
               "r"(numbers.w)
               : "memory");
}

// What these threads have stored in shared memory is seen by the tensor cores. A barrier is of so many threads.
__device__ __forceinline__ void publish_shared(int barrier, int threads) {
  asm volatile("fence.proxy.async.shared::cta;\nbar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Of CTAs that take an item together. A stage is free when all have multiplied what it holds, for they load keys for one another.
__device__ __forceinline__ int spread_rank() { return SPREAD > 1 ? int(cluster_rank()) : 0; }

__device__ __forceinline__ void free_stage(unsigned barrier, int lane) {
  if (SPREAD == 1 && lane == 0) arrive(barrier);
  if (SPREAD > 1 && lane < SPREAD) arrive_at(barrier, lane);
}

// None loads for one that has not begun, or has ended.
__device__ __forceinline__ void meet() {
  if constexpr (SPREAD > 1) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}

// Warpgroups that share tiles ask for products in turn: what one weighs then hides behind the products of the other.
constexpr bool TAKE_TURNS = ITEMS == 1 && GROUPS > 1;
constexpr int FIRST_TURN = 2 + GROUPS;
__device__ __forceinline__ void begin_turn(int group) {
  if constexpr (TAKE_TURNS) asm volatile("bar.sync %0, %1;" ::"r"(FIRST_TURN + group), "n"(GROUPS * THREADS) : "memory");
}
__device__ __forceinline__ void end_turn(int group) {
  if constexpr (TAKE_TURNS)
    asm volatile("bar.arrive %0, %1;" ::"r"(FIRST_TURN + (group + 1) % GROUPS), "n"(GROUPS * THREADS) : "memory");
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

__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Where it lies, in a way that the compiler keeps and does not compute at every use.
__device__ __forceinline__ unsigned kept(unsigned address) {
  asm volatile("" : "+r"(address));
  return address;
}

__device__ __forceinline__ void store_kept(float* to, float first, float second) {
  asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;" ::"l"(to), "f"(first), "f"(second), "l"(KEPT)
               : "memory");
}

__device__ __forceinline__ void hold(const unsigned (&weights)[TOKENS / 16][4]) {
#pragma unroll
  for (int part = 0; part < TOKENS / 4; ++part) asm volatile("" ::"r"(weights[part / 4][part % 4]) : "memory");
}

// Adds sixteen weights of each of a warp's rows to each of eight columns.
__device__ __forceinline__ void multiply_ones(float (&sums)[4], const unsigned (&weights)[4]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %8}, "
               "{%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(0x3F803F80));
}

