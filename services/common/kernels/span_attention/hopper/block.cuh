// Keys and values of a drafter's block, whose rows see all of it. They lie in tensors of their own. In a tile that the copy
// engine has brought they take the places behind the context.

#pragma once

#include "build.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int BLOCK_ROWS = GROUP_ROWS / GROUP < 16 ? GROUP_ROWS / GROUP : 16;                         // at most
constexpr int ROW_EIGHTS = SIZE / 8, OWN_EIGHTS = (BLOCK_ROWS * ROW_EIGHTS + THREADS - 1) / THREADS;  // of a thread
static_assert(!HAS_BLOCK || ITEM_GROUPS == 1, "a warpgroup has all rows and columns of its items");

struct DraftBlock {
  const unsigned short *keys, *values;
  int sequence, row, head;  // from one to the next

  __device__ __forceinline__ size_t at(const Item& item, int own) const {
    return (size_t)item.sequence * sequence + own * row + item.head * head;
  }
};

// Those of its rows that lie in one tile. Where they lie is computed at each use, from a thread's number that the compiler does
// not look through: there are no registers to keep it.
struct OwnRows {
  uint4 keys[OWN_EIGHTS], values[OWN_EIGHTS];

  static __device__ __forceinline__ int row(unsigned thread, int each) { return (thread + each * THREADS) / ROW_EIGHTS; }
  // Where a row lies in the tile; elsewhere, or behind the last one, it has no place.
  static __device__ __forceinline__ int place(const Item& item, int tile, int row) {
    const int position = item.span.length + row, place = position - tile * TOKENS;
    return position < item.span.total && place < TOKENS ? place : -1;
  }

  __device__ __forceinline__ void ask(const DraftBlock& block, const Item& item, int tile) {
    const unsigned thread = kept(threadIdx.x % THREADS);
#pragma unroll
    for (int each = 0; each < OWN_EIGHTS; ++each) {
      keys[each] = values[each] = make_uint4(0, 0, 0, 0);
      if (place(item, tile, row(thread, each)) < 0) continue;
      const size_t at = block.at(item, row(thread, each)) + thread % ROW_EIGHTS * 8;
      keys[each] = *reinterpret_cast<const uint4*>(block.keys + at);
      values[each] = *reinterpret_cast<const uint4*>(block.values + at);
    }
  }

  // CTAs of a cluster have a panel of values each.
  __device__ __forceinline__ void store(unsigned to_keys, unsigned to_values, const Item& item, int tile, int column) const {
    const unsigned thread = kept(threadIdx.x % THREADS), eight = thread % ROW_EIGHTS;
#pragma unroll
    for (int each = 0; each < OWN_EIGHTS; ++each) {
      const int at = place(item, tile, row(thread, each));
      if (at < 0) continue;
      const unsigned panel = eight / 8 * HALF_TILE, offset = at * PANEL_BYTES + ((eight % 8 ^ at % 8) << 4);
      store_shared(to_keys + panel + offset, keys[each]);
      if (SPREAD == 1 || eight / 8 == column / PANEL) store_shared(to_values + (SPREAD > 1 ? 0 : panel) + offset, values[each]);
    }
  }
};
