// The last product of a row that is alone: its experts' lines times what they made of it, parts by rank; grid (tiles, bands).
//
// Places are older than the product before, so a CTA asks for all of its lines while that one drains. Every sum is one fp32
// accumulator over the whole depth in order, so a part has the bits of the program in Triton.
//
// `build.cuh` defines STEPS (64s of depth) and TILE (places of a tile, of which the first is taken).

#include "build.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "linear/cuda/left.cuh"

constexpr int SUB = 64, SUB_BYTES = SUB * 2;  // 64 numbers are a swizzled row of 128 bytes
constexpr int LINES = 64, ROWS = 8, WARPS = 4;
constexpr int X_SUB = ROWS * SUB_BYTES, W_SUB = LINES * SUB_BYTES;

// All of a CTA's operands, and a barrier for each 64 of depth. Rows behind the first are whatever was there: nobody reads
// their sums.
struct Held {
  unsigned begin;

  __device__ unsigned full(int step) const { return begin + step * 8; }
  __device__ unsigned x(int step) const { return begin + 1024 + step * X_SUB; }
  __device__ unsigned weight(int step) const { return begin + 1024 + STEPS * X_SUB + step * W_SUB; }
};

// One thread does.
__device__ __forceinline__ void ask(const Held& held, const TensorMap& x_map, const TensorMap& weight_map, int place,
                                    int line) {
#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) {
    expect_bytes(held.full(step), SUB_BYTES + W_SUB);
    load<false>(held.weight(step), &weight_map, step * SUB, line, held.full(step), 0, STREAMED);
  }
  await_previous();
#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) load<false>(held.x(step), &x_map, step * SUB, place, held.full(step), 0, KEPT);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32 + 32, 2)
    multiply_alone(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, const int* order,
                   const int* tiles, const int* count, unsigned short* out, int outputs) {
  extern __shared__ unsigned char memory[];
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int tile = blockIdx.x, first = blockIdx.y * LINES;
  // Past the first cache, which may hold them as they were.
  const int there = __ldcg(count), expert = __ldcg(tiles + tile), pair = __ldcg(order + tile * TILE);
  if (tile >= there) return;
  const Held held{(shared_address(memory) + 1023) & ~1023u};
  if (threadIdx.x == 0) {
    for (int step = 0; step < STEPS; ++step) barrier_init(held.full(step), 1);
    publish_barriers();
  }
  __syncthreads();
  if (warp == WARPS) {
    if (elected()) ask(held, x_map, weight_map, tile * TILE, expert * outputs + first);
    return;
  }
  await_previous();
  allow_next();
  float sums[ROWS / 2] = {};
  hold(sums);
#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) {
    await_phase(held.full(step), 0);
    begin_products();
    const unsigned long long x = descriptor(held.x(step)), weight = descriptor(held.weight(step));
#pragma unroll
    for (int part = 0; part < SUB / 16; ++part) mma(sums, weight + 2 * part, x + 2 * part);  // 32 bytes further
    end_products();
  }
  await_products<0>();
  hold(sums);
  if (lane % 4) return;
  unsigned short* const to = out + (size_t)pair * outputs + first + warp * 16 + lane / 4;
  to[0] = bits_of(sums[0]), to[8] = bits_of(sums[2]);
}
