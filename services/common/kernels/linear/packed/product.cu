// x[rows, depth] @ weight[lines, depth]^T of bfloat16 rows and a weight of codes with scales, and what follows.
//
// Codes become bfloat16 numbers in registers, and 64 lines of them are the left operand of one instruction of sixteen inputs and all
// rows. Every sum is one fp32 accumulator in order of depth, so a row has the bits of the other products by the widened weight.
// CTAs of a cluster have the same rows or the same lines, which they load for one another.

#include "build.cuh"
#include "barrier.cuh"
#include "cluster.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/packed/left.cuh"
#include "linear/packed/left_ends.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * 32 + 32, CTAS) __cluster_dims__(CLUSTER, 1, 1)
    product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, const unsigned* scales,
            unsigned short* out, unsigned short* scaled, const unsigned short* stream, const unsigned short* norm,
            const long long* squares, unsigned long long* added, int rows, int outputs, int depth, int groups, int row_scales,
            int shift, float inverse_depth, float eps, float offset) {
  extern __shared__ unsigned char memory[];
  // From lane 0, so that the compiler knows it to be the same in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, steps = depth / (SUBS * SUB);
  const int rank = CLUSTER > 1 ? int(cluster_rank()) : 0, first = (int(blockIdx.x) / CLUSTER * ACROSS + rank / SHARE) * OUTPUTS;
  const int row = rank % SHARE * X_ROWS;  // the first
  unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
  asm volatile("" : "+r"(tiles));  // kept, not computed at every use
  const Ring ring{tiles, tiles + STAGES * STAGE, tiles + STAGES * STAGE + STAGES * 8};
  const unsigned kept = tiles + STAGES * (STAGE + 16);
  if (warp == WARPS && elected()) ask_for(&weight_map), ask_for(&x_map);
  begin_ring<STAGES, CLUSTER>(ring, WARPS / (1 + PAIRED) * CLUSTER);
  if (warp == WARPS) {
    const Loader loader{ring, &x_map, &weight_map, first, rank};
    if (elected()) loader.run(steps);
    __syncwarp();
  } else {
    // Scales lie with the weight, and come from no kernel before either.
    keep_scales(kept, scales, groups, row_scales, shift, first, outputs);
    await_previous();
    // Not sooner: of kernels that start early one after the other, some read what an earlier one has written before they wait.
    allow_next();
    const size_t place = (size_t)row * outputs;
    const Ends ends{out + place, scaled + place, stream + place, norm,          squares ? squares + row : squares,
                    added + row, rows - row,     outputs,        inverse_depth, eps,
                    offset};
    Beside beside(ends, first, place_of(warp), lane);
    if constexpr (EARLY) beside.read(0);
    Sums sums;
    bool ending = true;
    if constexpr (PAIRED)
      ending = sum_in_turn(sums, ring, kept, kept + SCALES, steps, groups > 1, warp, lane);
    else
      sum_up(sums, ring, kept, steps, groups > 1, warp, lane);
    if (ending) {
      if constexpr (KIND == PLAIN) end_plain(sums, beside);
      if constexpr (KIND == GATED) end_gated(sums, beside);
      if constexpr (KIND == ADDED) end_added(sums, beside, place_of(warp));
    }
  }
  // Nobody leaves while others load into its memory.
  cluster_arrive<CLUSTER>();
  cluster_wait<CLUSTER>();
}
