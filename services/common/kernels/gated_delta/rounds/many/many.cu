// A round of many sequences: grid (pairs of heads that share queries and keys, rows of sequences); a CTA takes every
// such sequence in turn. Half its warps prepare blocks while the others take states through the blocks before.

#include "barrier.cuh"
#include "pdl.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/many/items.cuh"
#include "gated_delta/rounds/many/pair.cuh"
#include "gated_delta/rounds/many/prepare.cuh"
#include "gated_delta/rounds/many/states.cuh"

extern "C" __global__ void __launch_bounds__(2 * EACH_THREADS, 1)
    delta_rounds(const half_t* into, half_t* ring, const float* conv, const float* decays, const float* bias,
                 const half_t* norm, const int64* slots, const int64* lengths, const int64* foldeds, float* states, half_t* out,
                 int stride, int width, int ring_rows, int k_heads, int heads, int features, int kept, int batch, float scale,
                 float eps) {
  extern __shared__ unsigned char raw[];
  // The tensor cores' swizzle follows addresses.
  RoundPair& pair = *reinterpret_cast<RoundPair*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  const int warp = __shfl_sync(~0u, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
  allow_next();
  const int group = heads / k_heads, pairs = (group + 1) / TOGETHER_HEADS, k_head = blockIdx.x / pairs;
  const int before = blockIdx.x % pairs * TOGETHER_HEADS;
  const Round round{into,
                    ring,
                    slots,
                    lengths,
                    foldeds,
                    width,
                    ring_rows,
                    k_heads,
                    heads,
                    features,
                    kept,
                    batch,
                    k_head,
                    k_head * group + before,
                    min(group - before, TOGETHER_HEADS),
                    before == 0,
                    scale};
  if (threadIdx.x == 0) {
#pragma unroll
    for (int own = 0; own < TOGETHER_HEADS; ++own)
      barrier_init(shared_address(&pair.full[own]), WARPS), barrier_init(shared_address(&pair.empty[own]), WARPS);
#pragma unroll
    for (unsigned long long& arrived : pair.arrived) barrier_init(shared_address(&arrived), WARP);
    publish_barriers();
  }
  __syncthreads();
  if (warp < WARPS)
    advance_states(pair, round, states, norm, out, eps, warp, lane);
  else
    prepare(pair, round, conv, decays, bias, stride, warp - WARPS, lane);
}
