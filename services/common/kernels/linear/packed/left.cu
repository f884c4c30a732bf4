// x[rows, depth] @ weight[lines, depth]^T of bfloat16 rows and a weight of codes with scales, and what follows.
//
// Codes become bfloat16 numbers in registers, and 64 lines of them are the left operand of one instruction of sixteen inputs and all
// rows. Every sum is one fp32 accumulator in order of depth, so a row has the bits of the other products by the widened weight.
// CTAs of a cluster have lines of their own, and load rows for one another.

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
  const int first = blockIdx.x * OUTPUTS, rank = CLUSTER > 1 ? int(cluster_rank()) : 0;
  const PackedMemory own(memory);
  const Ring& ring = own.ring;
  begin_ring<STAGES, CLUSTER>(ring, WARPS * CLUSTER);
  if (warp == WARPS) {
    const Loader loader{ring, &x_map, &weight_map, first, rank};
    if (elected()) fill_ring(loader, steps);
    __syncwarp();
  } else {
    // Scales lie with the weight, and come from no kernel before either.
    keep_scales(own.scales, scales, groups, row_scales, shift, first, outputs);
    await_previous();
    // Not sooner: of kernels that start early one after the other, some read what an earlier one has written before they wait.
    allow_next();
    const Ends ends{out, scaled, stream, norm, squares, added, rows, outputs, inverse_depth, eps, offset};
    Beside beside;
    beside.read(ends, first, warp, lane);
    Sums sums;
    sum_up(sums, ring, own.scales, steps, groups > 1, warp, lane);
    if constexpr (KIND == PLAIN) end_plain(sums, ends, beside, first, warp, lane);
    if constexpr (KIND == GATED) end_gated(sums, ends, beside, first, warp, lane);
    if constexpr (KIND == ADDED) end_added(sums, ends, beside, first, warp, lane);
  }
  // Nobody leaves while others load into its memory.
  cluster_arrive<CLUSTER>();
  cluster_wait<CLUSTER>();
}
