// y[128, outputs] = x[128, depth] @ weight[outputs, depth]^T in bfloat16; every sum is one fp32 accumulator in order of depth.
//
// The build defines ROWS and LINES (rows of x and lines of the weight of a CTA), SUBS (64s of depth in a stage), STAGES,
// SHARE_X (CTAs of a cluster with the same rows) and SHARE_W (CTAs of a cluster with the same lines), and writes mma.inc.
#include <cuda_bf16.h>
#include <stdint.h>

#include "mma.inc"  // mma(float (&sums)[LINES / 2], uint64_t x, uint64_t weight): one wgmma of 64 rows, LINES lines, 16 deep

constexpr int ALL_ROWS = 128, SUB = 64, SUB_BYTES = SUB * 2, GROUP = 128;  // one row of 64 numbers is a swizzled row of 128 bytes
constexpr int GROUPS = ROWS / 64, CLUSTER = SHARE_X * SHARE_W, ROW_PARTS = ALL_ROWS / ROWS;
constexpr int X_SUB = ROWS * SUB_BYTES, W_SUB = LINES * SUB_BYTES;
constexpr int STAGE = SUBS * (X_SUB + W_SUB);
constexpr int X_SLICE = ROWS / SHARE_X, W_SLICE = SUBS / SHARE_W;
constexpr int PEERS = SHARE_X + SHARE_W - 1;  // CTAs that this one reads from and writes to, itself included

static_assert(ROWS == 64 || ROWS == 128, "a warpgroup multiplies 64 rows");
static_assert(LINES % 8 == 0 && LINES <= 256, "lines of a wgmma");
static_assert(X_SLICE % 8 == 0 && ROWS % SHARE_X == 0, "the swizzle repeats after eight rows");
static_assert(SUBS % SHARE_W == 0, "the weight of a stage is shared by 64s of depth");
static_assert(SHARE_W == 1 || SHARE_W == ROW_PARTS, "a cluster has one row part, or all");

#include "asynchronous.cu"
#include "primitives.cu"
#include "multiply.cu"

struct Place {
  int lines, rows, in_row, in_column;  // first line, first row, index among CTAs of the same rows, of the same lines

  __device__ Place() {
    const int rank = CLUSTER > 1 ? int(cluster_rank()) : 0;
    in_row = rank % SHARE_X;
    in_column = rank / SHARE_X;
    lines = (int(blockIdx.x) / CLUSTER * SHARE_X + in_row) * LINES;
    rows = (SHARE_W > 1 ? in_column : int(blockIdx.y)) * ROWS;
  }
};

struct Loader {
  const Ring& ring;
  const Place& place;
  const TensorMap *x_map, *weight_map;

  __device__ void weights(int step, int stage) const {
    uint16_t mask = 0;
    for (int part = 0; part < SHARE_W; ++part) mask |= 1u << (part * SHARE_X + place.in_row);
#pragma unroll
    for (int part = 0; part < W_SLICE; ++part) {
      const int sub = (SHARE_W > 1 ? place.in_column * W_SLICE : 0) + part;
      load<(SHARE_W > 1)>(ring.weight(stage, sub), weight_map, (step * SUBS + sub) * SUB, place.lines,
                          ring.full_at(stage), mask, STREAMED);
    }
  }

  __device__ void rows(int step, int stage) const {
    const uint16_t mask = ((1u << SHARE_X) - 1) << (place.in_column * SHARE_X);
    const int first = place.in_row * X_SLICE;
#pragma unroll
    for (int sub = 0; sub < SUBS; ++sub) {
      load<(SHARE_X > 1)>(ring.x(stage, sub) + first * SUB_BYTES, x_map, (step * SUBS + sub) * SUB, place.rows + first,
                          ring.full_at(stage), mask, KEPT);
    }
  }

  __device__ void prepare() const {
    asm volatile("prefetch.tensormap [%0];" ::"l"(x_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(weight_map) : "memory");
  }

  // Weights do not come from the kernel before, so the first ones are asked for while it drains.
  __device__ void run(int steps) const {
    const int ahead = steps < STAGES ? steps : STAGES;
    for (int step = 0; step < ahead; ++step) {
      expect_bytes(ring.full_at(step), STAGE);
      weights(step, step);
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int step = 0; step < ahead; ++step) rows(step, step);
    int stage = 0;
    uint32_t parity = 0;
    for (int step = ahead; step < steps; ++step) {
      await_phase(ring.empty_at(stage), parity);
      expect_bytes(ring.full_at(stage), STAGE);
      weights(step, stage);
      rows(step, stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
};

// Lane n of each warp tells the n-th CTA that this one reads from that a stage may be overwritten.
__device__ __forceinline__ void release(uint32_t barrier, const Place& place, int lane) {
  if (lane < PEERS) {
    const bool of_row = lane < SHARE_X;
    int column = lane - SHARE_X;
    column += column >= place.in_column;
    const int rank = of_row ? place.in_column * SHARE_X + lane : column * SHARE_X + place.in_row;
    arrive_at(barrier, CLUSTER > 1 ? rank : 0);
  }
}

__device__ __forceinline__ uint32_t packed(const float (&sums)[LINES / 2], int eight, int half) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(sums[eight * 4 + half * 2], sums[eight * 4 + half * 2 + 1]);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// A lane has two neighbours of a row in each eight lines; a pair of lanes trades two such, so that four lanes write 32 bytes.
__device__ __forceinline__ void store(const float (&sums)[LINES / 2], __nv_bfloat16* y, int row, int line, int outputs,
                                      int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __nv_bfloat16* const y_row = y + size_t(row + half * 8) * outputs;
#pragma unroll
    for (int eight = 0; eight + 1 < LINES / 8; eight += 2) {
      const uint32_t left = packed(sums, eight, half), right = packed(sums, eight + 1, half);
      const uint32_t other = __shfl_xor_sync(~0u, lane % 2 ? left : right, 1);
      const int at = line + (eight + lane % 2) * 8 + lane / 2 % 2 * 4;
      const uint2 four = lane % 2 ? uint2{other, right} : uint2{left, other};
      if (at < outputs) *reinterpret_cast<uint2*>(y_row + at) = four;
    }
    if constexpr (LINES / 8 % 2) {
      const int at = line + LINES - 8 + lane % 4 * 2;
      if (at < outputs) *reinterpret_cast<uint32_t*>(y_row + at) = packed(sums, LINES / 8 - 1, half);
    }
  }
}

extern "C" __global__ void __launch_bounds__(GROUPS * GROUP + 32, 1) __cluster_dims__(CLUSTER, 1, 1)
    product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, __nv_bfloat16* y,
            int outputs, int depth) {
  extern __shared__ uint8_t memory[];
  // From lane 0, so that the compiler knows it to be the same in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, steps = depth / (SUBS * SUB);
  uint32_t tiles = (shared_address(memory) + 1023) & ~1023u;
  asm volatile("" : "+r"(tiles));  // kept, not computed at every use
  const Ring ring{tiles, tiles + STAGES * STAGE, tiles + STAGES * STAGE + STAGES * 8};
  const Place place;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const Loader loader{ring, place, &x_map, &weight_map};
  if (threadIdx.x == GROUPS * GROUP) loader.prepare();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(ring.full_at(stage), 1);
      barrier_init(ring.empty_at(stage), PEERS * GROUPS * 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_arrive();
  cluster_wait();

  if (warp == GROUPS * 4) {
    if (elected()) loader.run(steps);
    __syncwarp();
    cluster_arrive();
  } else {
    float sums[LINES / 2];
#pragma unroll
    for (int number = 0; number < LINES / 2; ++number) sums[number] = 0.f;
    hold(sums);
    const int group = warp / 4;
    int stage = 0, before = 0;
    uint32_t parity = 0;
    for (int step = 0; step < steps; ++step) {
      await_phase(ring.full_at(stage), parity);
      multiply(sums, ring, stage, group);
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      // Nobody waits for the last stages to be empty, so nobody hears of them: a CTA may be gone by then.
      if (step > 0 && step - 1 + STAGES < steps) release(ring.empty_at(before), place, lane);
      before = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    hold(sums);
    cluster_arrive();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int row = place.rows + group * 64 + (warp % 4) * 16 + lane / 4;
    store(sums, y, row, place.lines, outputs, lane);
  }
  cluster_wait();
}
