// Rows of the span, which the kernel before may have made: where they lie is found before the wait for it.

#pragma once

#include "build.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/kept.cuh"
#include "gated_delta/rounds/rows.cuh"

static_assert(ALONE_ROWS * 3 <= WARPS, "each CTA makes few rows at once");
constexpr int PAIRS = BLOCK / 2 * 3, UNITS = (PAIRS + WARPS * CTAS - 1) / (WARPS * CTAS);  // parts of two rows, and of a warp

// What a part of one or two rows is made of; nothing where a row is absent.
struct FreshRows {
  int row, part, count, column;
  const half_t *before[TAPS - 1], *own;

  __device__ __forceinline__ void find(const DeltaSpan& span, int start, int place, int first, int end, int unit, int together,
                                       int lane) {
    row = first + unit / 3 * together, part = unit % 3, count = min(together, end - row),
    column = span.channel(part) + lane * 4;
#pragma unroll
    for (int each = 0; each < TAPS - 1; ++each) {
      const int other = row + 1 - TAPS + each;
      const bool there = count > 0 && start + other >= 0;
      before[each] = there ? span.row(start + other, place + other) + column : nullptr;
    }
    own = span.into + (start + row - span.length) * span.features + column;
  }
  __device__ __forceinline__ Raw<2> load(int features) const {
    Raw<2> raw;
#pragma unroll
    for (int each = 0; each < TAPS - 1; ++each)
      raw.rows[each] = before[each] ? *reinterpret_cast<const uint2*>(before[each]) : make_uint2(0, 0);
#pragma unroll
    for (int each = 0; each < 2; ++each)
      raw.rows[TAPS - 1 + each] = each < count ? *reinterpret_cast<const uint2*>(own + each * features) : make_uint2(0, 0);
    return raw;
  }
  // Rows of the span are kept in the ring, too.
  __device__ __forceinline__ void store(const DeltaSpan& span, int place, const Raw<2>& raw) const {
    if (part != 2 && !span.keeps_keys) return;
#pragma unroll
    for (int each = 0; each < 2; ++each)
      if (each < count) *reinterpret_cast<uint2*>(span.kept_row(place + row + each) + column) = raw.rows[TAPS - 1 + each];
  }
};

// A lane for each row: what its rate and its decay come of. Of one block both halves of a warp have the rows.
struct FreshGates {
  int row;
  const half_t* from;
  half_t* kept;
  half_t logit = 0, slope = 0;
  float decay, bias;

  __device__ __forceinline__ void find(const DeltaSpan& span, const float* decays, const float* biases, int start, int place,
                                       int real, int count, bool keeps, int lane) {
    row = count > 1 ? lane : lane % BLOCK;
    const bool there = row < real;
    from = there ? span.row(start + row, place + row) + span.gates : nullptr;
    kept = there && keeps && start + row >= span.length ? span.kept_row(place + row) + span.gates : nullptr;
    decay = decays[span.head], bias = biases[span.head];
  }
  __device__ __forceinline__ void load(int apart) {
    if (from) logit = from[0], slope = from[apart];
  }
  __device__ __forceinline__ void make(Memory& memory, int apart) const {
    if (kept) kept[0] = logit, kept[apart] = slope;
    set_rate(memory.blocks[row / BLOCK], logit, slope, from != nullptr, decay, bias, row % BLOCK);
  }
};

// What gates a row that this warp ends, and the norm's weight.
struct End {
  int row;
  const uint2* from;
  uint2 z = make_uint2(0, 0), weight;

  __device__ __forceinline__ void find(const DeltaSpan& span, const half_t* norm, int start, int old, int real, int rank,
                                       int warp, int lane) {
    row = old + (unsigned)(rank - old) % CTAS + warp * CTAS;
    const half_t* gates = span.into + (start + row - span.length) * span.features + span.kept + span.head * DIM;
    from = row < real ? reinterpret_cast<const uint2*>(gates + lane * 4) : nullptr;
    weight = *reinterpret_cast<const uint2*>(norm + lane * 4);
  }
  __device__ __forceinline__ void load() {
    if (from) z = *from;
  }
};
