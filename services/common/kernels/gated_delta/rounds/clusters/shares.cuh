// What the CTAs of a head keep, and what they send to one another. Each has some columns of the state and of values.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "cluster.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/kept.cuh"

constexpr int COLUMNS = DIM / CTAS, HOLDERS = COLUMNS / 16;  // and warps that hold a state's columns, 16 each
constexpr int GROUP = 4;                                     // warps whose columns are multiplied at once: a team

struct HeadShares {
  Memory memory;
  float2 state[DIM / 4][GROUP * WARP];  // a lane's pairs of columns, as they were before the block
  unsigned long long rows, reads;       // barriers: what others send of rows, and of what rows read, is there
};
static_assert(sizeof(HeadShares) == SHARES_BYTES, "as `source.py` counts");

// Stores into the same place of another CTA, and counts the bytes at a barrier there: no fence is needed.
__device__ __forceinline__ void send(float& to, float what, unsigned barrier, int rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   address_at(shared_address(&to), rank)),
               "r"(__float_as_uint(what)), "r"(address_at(barrier, rank)));
}

__device__ __forceinline__ void send(uint2& to, uint2 what, unsigned barrier, int rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
                   address_at(shared_address(&to), rank)),
               "r"(what.x), "r"(what.y), "r"(address_at(barrier, rank)));
}

__device__ __forceinline__ void send(float4& to, float4 what, unsigned barrier, int rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   address_at(shared_address(&to), rank)),
               "r"(__float_as_uint(what.x)), "r"(__float_as_uint(what.y)), "r"(__float_as_uint(what.z)),
               "r"(__float_as_uint(what.w)), "r"(address_at(barrier, rank)));
}

// A warp has sent so many bytes to each other CTA.
__device__ __forceinline__ void announce(unsigned barrier, unsigned bytes, int rank, int lane) {
  if (lane == 0 || lane >= CTAS) return;
  asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(address_at(barrier, rank ^ lane)), "r"(bytes)
               : "memory");
}

// What a CTA makes of a row goes to all of them, as `Here` says.
struct Everywhere {
  unsigned barrier;
  int rank;
  unsigned& sent;  // bytes to each other CTA

  template <typename T>
  __device__ __forceinline__ void all(T& to, T what) const {
    to = what;
#pragma unroll
    for (int other = 1; other < CTAS; ++other) send(to, what, barrier, rank ^ other);
  }
  template <typename T>
  __device__ __forceinline__ void one(T& to, T what, int column) const {
    if (column / COLUMNS == rank)
      to = what;
    else
      send(to, what, barrier, column / COLUMNS);
  }
  // Halves, a query itself, and what a lane adds.
  __device__ __forceinline__ void count(int part, int rows) const {
    sent += rows * (part == 2 ? COLUMNS * 4 + 8 : part == 1 ? DIM * 4 + 4 : DIM * 8 + 4);
  }
};

// What a row reads goes to the CTA that ends the row.
struct ToEnd {
  unsigned barrier;
  int rank;
  bool holds;

  __device__ __forceinline__ void operator()(float2& base, const float2& read, int row) const {
    if (!holds) return;
    if (row % CTAS == rank)
      base = read;
    else
      send(reinterpret_cast<uint2&>(base), make_uint2(__float_as_uint(read.x), __float_as_uint(read.y)), barrier, row % CTAS);
  }
};
constexpr unsigned READ_BYTES = BLOCK / CTAS * 16 * 4;  // of a block, from a warp to another CTA
