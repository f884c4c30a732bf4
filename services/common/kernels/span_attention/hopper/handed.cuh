// What warpgroups that score leave for those that add values: weights of a tile, and what is highest in each row.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int SUMS = COUNTED_ROWS / 2, EIGHTS = COUNTED_ROWS / 8;  // of a thread: sums of 64 lines, and eights of rows
constexpr int HANDED_WEIGHTS = COUNTED_ROWS * PANEL_BYTES;         // of a tile
constexpr int BEST_BYTES = COUNTED_ROWS * 4, TOLD_BYTES = 4 * BEST_BYTES + 16;
constexpr int VALUE_GROUPS = 2, COUNTED_THREADS = VALUE_GROUPS * THREADS + 32;  // those that add values, and masses

// Slots of a ring: weights, in rows of 64 keys, then for each row the highest score so far and how much what was summed before
// fades, and which rows do. With the last tile of a split, how much what splits before it have, and what it has, fade.
struct Slots {
  unsigned weights, told, full, empty;
  int slot = 0;
  unsigned parity = 0;

  __device__ __forceinline__ unsigned weights_at() const { return weights + slot * HANDED_WEIGHTS; }
  __device__ __forceinline__ unsigned best_at() const { return told + slot * TOLD_BYTES; }
  // Of the tile before, whose slot nobody takes until then.
  __device__ __forceinline__ unsigned best_before() const { return told + (slot == 0 ? HANDED - 1 : slot - 1) * TOLD_BYTES; }
  __device__ __forceinline__ unsigned fades_at() const { return best_at() + BEST_BYTES; }
  __device__ __forceinline__ unsigned flags_at() const { return fades_at() + BEST_BYTES; }
  __device__ __forceinline__ unsigned before_at() const { return flags_at() + 16; }
  __device__ __forceinline__ unsigned after_at() const { return before_at() + BEST_BYTES; }
  __device__ __forceinline__ unsigned full_at() const { return full + slot * 8; }
  __device__ __forceinline__ unsigned empty_at() const { return empty + slot * 8; }
  __device__ __forceinline__ void next() {
    if (++slot == HANDED) slot = 0, parity ^= 1;
  }
};

// What scorers know: whose turn it is to raise what is highest, what each of their warps has found, in one of two places, and what
// is highest in splits that have ended.
struct Chain {
  unsigned highest, turns, ended;

  __device__ __forceinline__ unsigned highest_at(int place, int scorer, int warp) const {
    return highest + ((place * KEY_GROUPS + scorer) * THREADS / 32 + warp) * BEST_BYTES;
  }
};
static_assert(KEY_GROUPS < HANDED, "a scorer that raises what is highest has left the slot before");

// The tiles of a CTA's items, as all its warpgroups walk them: splits of one size.
struct SplitSteps {
  const Item& item;
  int size, begin, end;
  bool alike;  // whether all rows have splits of this size

  // Whether a row has splits of this size.
  __device__ __forceinline__ bool has(int row) const {
    return row < item.span.rows() && (alike || item.span.split(row) == size);
  }

  // Whether a tile is the first or the last of a split.
  template <typename Take>
  __device__ __forceinline__ void each(const Take& take) const {
    int edge = begin;
    for (int tile = begin; tile < end; ++tile) {
      const bool first = tile == edge;
      if (first) edge += size;
      take(tile, first, tile + 1 == edge || tile + 1 == end);
    }
  }
};

// Where a split's part lies.
struct PartPlace {
  size_t first;  // of its rows

  __device__ __forceinline__ PartPlace(const ItemEnds& ends, const SplitSteps& steps, int last_tile) {
    const Item& item = steps.item;
    const int slot = max(last_tile / steps.size - item.span.share(1, ends.programs, steps.size) + 1, 0);
    first = (((size_t)item.sequence * KV_HEADS + item.head) * ends.parts + slot) * item.span.rows();
  }
};

// Calls with the steps of each size that splits of an item's rows have.
template <typename Take>
__device__ __forceinline__ void walk_sizes(const Items& items, const Item& item, const Take& take) {
  const int most = item.most(), least = item.least();
  for (int size = least; size <= most; size += max(most - least, 1)) {
    const SplitTiles tiles(item.span, item.program, items.programs, size);
    if (tiles.begin < tiles.end) take(SplitSteps{item, size, tiles.begin, tiles.end, most == least});
  }
}
