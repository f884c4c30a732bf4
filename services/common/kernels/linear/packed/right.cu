// x[rows, depth] @ weight[lines, depth]^T of up to sixteen bfloat16 rows and a weight of codes with scales, and what follows.
//
// Codes become bfloat16 numbers in registers, which are multiplied as those of any weight are: every sum is one fp32 accumulator in
// order of depth, sixteen inputs an instruction. So a row has the bits of the other products by the widened weight. A warp has eight
// lines of the weight and all rows.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/packed/boxes.cuh"
#include "linear/packed/right.cuh"
#include "linear/persistent/ends.cuh"
#include "linear/persistent/plain.cuh"

// Adds the squares of a CTA's rows once: additions to the same few places go one by one.
__device__ __forceinline__ void add_squares(const unsigned long long (&of)[WARPS][X_ROWS], const Ends& ends) {
  asm volatile("bar.sync 1, %0;" ::"n"(WARPS * 32) : "memory");
  if (threadIdx.x >= ends.rows) return;
  unsigned long long total = 0;
#pragma unroll
  for (int each = 0; each < WARPS; ++each) total += of[each][threadIdx.x];
  atomicAdd(ends.added + threadIdx.x, total);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32 + 32, CTAS) product(PARAMETERS) {
  extern __shared__ unsigned char memory[];
  // From lane 0, so that the compiler knows it to be the same in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, steps = depth / (SUBS * SUB);
  const int first = blockIdx.x * OUTPUTS;
  const PackedMemory own(memory);
  const Ring& ring = own.ring;
  begin_ring<STAGES, 1>(ring, WARPS);
  if (warp == WARPS) {
    const BoxLoader loader{ring, &x_map, &weight_map, first};
    if (elected()) fill_ring(loader, steps);
    return;
  }
  // Scales lie with the weight, and come from no kernel before either.
  keep_scales(own.scales, scales, groups, row_scales, shift, first, outputs);
  await_previous();
  // Not sooner: of kernels that start early one after the other, some read what an earlier one has written before they wait.
  allow_next();
  Ends ends{out, scaled, stream, norm, squares, added, rows, outputs, inverse_depth, eps, offset};
  const int line = first + warp * LINES, row = lane / 4;
  unsigned streams[LINES / 4], norms[LINES / 8];
  __shared__ unsigned long long squares_of[WARPS][X_ROWS];
  if constexpr (KIND == ADDED) {
    read_beside(ends, row, line, lane, streams, norms);
    if (lane < X_ROWS) squares_of[warp][lane] = 0;
  }
  Sums sums;
  DepthWalk walk{ring, own.scales, steps, groups > 1, warp * LINES + lane / 4, lane};
  walk.run(sums);
  raise(sums);
  if constexpr (KIND == PLAIN) end_plain(sums, Scales(), ends, row, line, lane);
  if constexpr (KIND == ADDED) {
    Ends of_warp = ends;
    of_warp.added = squares_of[warp];
    end_added(sums, of_warp, row, line, lane, streams, norms);
    add_squares(squares_of, ends);
  }
}
