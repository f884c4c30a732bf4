// What a CTA works on: two heads that share queries and keys, of one sequence after the other.

#pragma once

#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/many/pair.cuh"
#include "gated_delta/rounds/rows.cuh"

enum : int { OF_STATES = 1, OF_ROWS = 2, OF_COUPLES = 3 };

// A barrier of the warps that prepare, or of those with states.
__device__ __forceinline__ void meet(int which) { asm volatile("bar.sync %0, %1;" ::"r"(which), "n"(EACH_THREADS) : "memory"); }

// One of the warps that prepare, which tells all whether one of them says so.
__device__ __forceinline__ bool meet_any(int which, bool says) {
  unsigned any;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "bar.red.or.pred q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"((unsigned)says), "r"(which), "n"(EACH_THREADS)
      : "memory");
  return any != 0;
}

// One of the two warps that make products of keys with keys.
__device__ __forceinline__ void meet_couple() {
  asm volatile("bar.sync %0, %1;" ::"n"((int)OF_COUPLES), "n"(2 * WARP) : "memory");
}

// What single warps do beside their share: of those that make values first, as the others have more to wait for.
constexpr int SETS_RATES = WARPS - 1, FINDS_PLACES = WARPS - 2, ASKS = WARPS - 3;

// What a round is given; a CTA has `count` heads from `head` on, of sequences whose numbers lie apart by the grid.
struct Round {
  const half_t* into;
  half_t* ring;
  const int64 *slots, *lengths, *foldeds;
  int width, ring_rows, k_heads, heads, features, kept, batch, k_head, head, count;
  bool keeps_keys;
  float scale;
};

struct SequenceItem {
  int slot, length, folded;
  __device__ SequenceItem(const Round& round, int sequence)
      : slot((int)round.slots[sequence]), length((int)round.lengths[sequence]), folded((int)round.foldeds[sequence]) {}
};

// A sequence's rows of the span, and those of its slot.
__device__ __forceinline__ const half_t* rows_of(const Round& round, int sequence) {
  return round.into + (size_t)sequence * round.width * round.features;
}
__device__ __forceinline__ half_t* ring_of(const Round& round, const SequenceItem& item) {
  return round.ring + (size_t)item.slot * round.ring_rows * round.kept;
}

__device__ __forceinline__ DeltaSpan span_of(const Round& round, const half_t* into, half_t* ring, int length) {
  DeltaSpan span{into, ring, length, round.ring_rows, round.features, round.kept};
  span.take_heads(round.k_heads, round.heads, round.k_head, round.head);
  span.keeps_keys = round.keeps_keys, span.scale = round.scale;
  return span;
}

__device__ __forceinline__ DeltaSpan span_of(const Round& round, const SequenceItem& item, int sequence) {
  return span_of(round, rows_of(round, sequence), ring_of(round, item), item.length);
}
