// What a walk over an item's tiles does beside it: rows of a drafter's block, which it reads at the end, and what becomes of a
// part: left for the kernel that merges parts, or the weighted mean of the values.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"
#include "span_attention/hopper/block.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"
#include "span_attention/hopper/turn.cuh"

struct ItemEnds {
  float *partial, *sums;
  unsigned short* out;
  int programs, parts, column;  // the first of a warpgroup's
  DraftBlock block;

  // Which of the queries a row is.
  __device__ __forceinline__ size_t line(const Item& item, int row) const {
    const size_t position = (size_t)item.sequence * item.span.width + row / GROUP;
    return (position * KV_HEADS + item.head) * GROUP + row % GROUP;
  }

  // Stores the part that ends with a tile, of the rows whose splits have that size. Splits of the first program are one part.
  __device__ __forceinline__ void leave(const Part& part, const Item& item, int last_tile, int size, int row, int lane) const {
    const int slot = max(last_tile / size - item.span.share(1, programs, size) + 1, 0);
    const size_t pair = (size_t)item.sequence * KV_HEADS + item.head;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int own = row + half * HALF_ROWS;
      if (own >= item.span.rows() || item.span.split(own) != size) continue;
      const size_t at = (pair * parts + slot) * item.span.rows() + own;
      float* to = partial + at * SIZE + column + lane % 4 * 2;
#pragma unroll
      for (int eight = 0; eight < COLUMNS / 8; ++eight)
        store_kept(to + eight * 8, part.sum[eight * 4 + half * 2], part.sum[eight * 4 + half * 2 + 1]);
      if (column == 0 && lane % 4 == 0)
        *reinterpret_cast<float2*>(sums + at * 2) = make_float2(part.best[half], part.mass[half]);
    }
  }

  __device__ __forceinline__ void mean(const Part& part, const Item& item, int size, int row, int lane) const {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int own = row + half * HALF_ROWS;
      const bool there = own < item.span.rows() && (TOGETHER || item.span.split(own) == size);
      if (!__any_sync(~0u, there)) continue;
      const float by = part.mass[half] > 0.f ? part.mass[half] : 1.f;
      unsigned short* to = out + (there ? line(item, own) : 0) * SIZE + column + lane % 4 * 8;
#pragma unroll
      for (int eight = 0; eight < COLUMNS / 8; eight += 4) {
        unsigned pairs[4];
#pragma unroll
        for (int each = 0; each < 4; ++each) {
          const int number = (eight + each) * 4 + half * 2;
          pairs[each] = pair_of(div_full(part.sum[number], by), div_full(part.sum[number + 1], by));
        }
        turn(pairs, lane);
        if (there) *reinterpret_cast<uint4*>(to + eight * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  }
};
