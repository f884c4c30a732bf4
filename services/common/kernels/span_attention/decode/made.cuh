// The heads of a row, made of the product in front as `store_qkv` makes them, all at once. They go to shared memory, the key and the
// value to their slot, too.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/hopper/heads.cuh"

struct WarpShares {
  alignas(16) unsigned short rows[ROWS][ROW];
  unsigned long long barriers[UNITS];
};

struct Heads {
  Line lines[ROWS];

  // What does not come from the kernel before.
  __device__ __forceinline__ void find(const Sources& from, int head, int lane) {
#pragma unroll
    for (int row = 0; row < ROWS; ++row) lines[row].find(from, row, head, KV_HEADS, lane);
  }
  __device__ __forceinline__ void load(const Sources& from) {
#pragma unroll
    for (int row = 0; row < ROWS; ++row) lines[row].load(from);
  }

  // Step by step, because each step waits for the one before.
  __device__ __forceinline__ void make(const Sources& from, WarpShares& shares, unsigned short* kv, int places, int slot,
                                       int head, int lane) const {
    const float by = from.scale();
    float x[ROWS][2][2];
    unsigned pieces[VALUE][3];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) lines[row].scaled(x[row], by, BIASED);
#pragma unroll
    for (int row = 0; row < VALUE; ++row)
      if (NORMED) add_pieces(Line::squares(x[row]), pieces[row]);
#pragma unroll
    for (int row = 0; row < VALUE; ++row) {
      if (NORMED) lines[row].divide(x[row], from, root_scale(sum_of_pieces(pieces[row]), 1.f / SIZE, from.eps));
      lines[row].turn(x[row]);
    }
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      unsigned pairs[2];
      Line::round(x[row], pairs);
      const size_t line = ((size_t)(row - KEY) * places + slot) * KV_HEADS + head;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = half * SIZE / 2 + lane * 2;
        *reinterpret_cast<unsigned*>(&shares.rows[row][column]) = pairs[half];
        if (row >= KEY) *reinterpret_cast<unsigned*>(kv + line * SIZE + column) = pairs[half];
      }
    }
    __syncwarp();
  }
};
