// Single instructions, and what orders them.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "cluster.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/sizes.cuh"

__device__ __forceinline__ void store_shared(unsigned to, uint4 numbers) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(numbers.x), "r"(numbers.y), "r"(numbers.z),
               "r"(numbers.w)
               : "memory");
}

// A barrier is of so many threads.
__device__ __forceinline__ void publish_shared(int barrier, int threads) {
  publish();
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ int spread_rank() { return SPREAD > 1 ? int(cluster_rank()) : 0; }

// A warp has no more use for a stage. CTAs of a cluster load keys for one another, so all of them are told. There a scorer's warp
// and an adder's free a stage, and one that is both counts TWICE.
template <bool TWICE = true>
__device__ __forceinline__ void free_stage(unsigned barrier, int lane) {
  if (SPREAD == 1 && lane == 0) arrive(barrier);
  if (SPREAD > 1 && lane < (TWICE ? 2 : 1) * SPREAD) arrive_at(barrier, lane % SPREAD);
}

// None loads for one that has not begun. Barriers are the only memory in question, so no other stores are waited for.
__device__ __forceinline__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

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

// Where it lies, in a way that the compiler keeps and does not compute at every use.
__device__ __forceinline__ unsigned kept(unsigned address) {
  asm volatile("" : "+r"(address));
  return address;
}

__device__ __forceinline__ void store_kept(float* to, float first, float second) {
  asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;" ::"l"(to), "f"(first), "f"(second), "l"(KEPT) : "memory");
}

__device__ __forceinline__ void hold(const unsigned (&weights)[TOKENS / 16][4]) {
#pragma unroll
  for (int part = 0; part < TOKENS / 4; ++part) asm volatile("" ::"r"(weights[part / 4][part % 4]) : "memory");
}

constexpr unsigned ONES = 0x3F803F80;  // two of them

// Stores blocks as `load_blocks` loads them.
__device__ __forceinline__ void store_blocks(unsigned to, const unsigned (&blocks)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(blocks[0]), "r"(blocks[1]),
               "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

__device__ __forceinline__ void store_shared(unsigned to, float number) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(number) : "memory");
}

__device__ __forceinline__ float load_shared(unsigned from) {
  float number;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(number) : "r"(from) : "memory");
  return number;
}

__device__ __forceinline__ void store_pair(unsigned to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}

__device__ __forceinline__ float2 load_pair(unsigned from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from) : "memory");
  return pair;
}

__device__ __forceinline__ float4 load_four(unsigned from) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(from)
               : "memory");
  return four;
}

// Of codes: of two, or of heads that are no numbers.
constexpr int NO_NUMBER = 127;
__device__ __forceinline__ int load_exponent(unsigned from) {
  int exponent;
  asm volatile("ld.shared.s8 %0, [%1];" : "=r"(exponent) : "r"(from) : "memory");
  return exponent;
}

// Loads bytes that lie in a row, by sixteens, and counts them at a barrier.
__device__ __forceinline__ void load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

// Adds to a warp's sixteen rows of eight columns sixteen weighted values, of which the last two are half each.
__device__ __forceinline__ void multiply_values_of_warp(float& first, float& second, float& third, float& fourth,
                                                        const unsigned (&weights)[4], unsigned low, unsigned high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(first), "+f"(second), "+f"(third), "+f"(fourth)
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(low), "r"(high));
}

// Adds sixteen weights of each of a warp's rows to each of eight columns.
__device__ __forceinline__ void multiply_ones(float (&sums)[4], const unsigned (&weights)[4]) {
  multiply_values_of_warp(sums[0], sums[1], sums[2], sums[3], weights, ONES, ONES);
}
