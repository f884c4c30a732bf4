// What a block brings to shared memory, and the ring of stages that it comes through.
//
// The build defines before: STAGES, PROGRAMS (CTAs that share a processor), and multiply_32 and multiply_128, wgmmas of 64
// rows.

constexpr int COLUMNS = 64, LINES = 32, PANEL = 64, PANEL_BYTES = 128, STEPS = DIM / 16;
constexpr int CHAIN_WARPS = 4, CHAIN_THREADS = CHAIN_WARPS * WARP;

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Panels of 64 numbers (32 of the base), swizzled over 128 bytes.
struct alignas(1024) Stage {
  unsigned char factors[2][2 * LINES * PANEL_BYTES];  // upper halves of all lines, then what is left
  unsigned char keys[2][2 * BLOCK * PANEL_BYTES];
  unsigned char base[2][LINES * PANEL_BYTES];
  float rates[LINES];
};
constexpr unsigned STAGE_BYTES = 2 * 2 * LINES * PANEL_BYTES + 2 * 2 * BLOCK * PANEL_BYTES + 2 * LINES * PANEL_BYTES + LINES * 4;

struct Pipe {
  Stage stages[STAGES];
  unsigned long long full[STAGES], empty[STAGES];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void expect_bytes(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// A phase that never ends is a defect: the kernel then fails, it does not hang.
__device__ __forceinline__ void await_phase(unsigned barrier, unsigned parity) {
  for (unsigned tries = 0;; ++tries) {
    unsigned done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done) return;
    if (tries == 1u << 24) __trap();
  }
}

__device__ __forceinline__ void load_box(unsigned to, const TensorMap* map, int column, int row, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// Results of the kernel before are complete and visible from here on.
__device__ __forceinline__ void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void allow_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

constexpr unsigned long long SWIZZLED = (1ull << 62) | ((unsigned long long)(1024 >> 4) << 32);

// Lines of the factors are K-major; keys have their columns side by side, panels of them apart.
__device__ __forceinline__ unsigned long long k_major(unsigned address) {
  return SWIZZLED | (1ull << 16) | ((address & 0x3FFFF) >> 4);
}
__device__ __forceinline__ unsigned long long column_major(unsigned address) {
  return SWIZZLED | ((unsigned long long)(sizeof(Stage::keys[0]) >> 4) << 16) | ((address & 0x3FFFF) >> 4);
}
