// Rows as the model projected them, of a block and those before that it is convolved with: copied into shared memory while
// the block before is prepared.

#pragma once

#include "barrier.cuh"
#include "warp.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/many/items.cuh"
#include "gated_delta/rounds/many/pair.cuh"
#include "gated_delta/rounds/rows.cuh"

struct Place : Where {
  __device__ __forceinline__ Place(const Where& where) : Where(where) {}
  __device__ __forceinline__ Place(const Round& round, int sequence, const SequenceItem& item)
      : Where{rows_of(round, sequence),     ring_of(round, item), sequence, item.length, item.folded,
              item.folded % round.ring_rows} {}
  __device__ __forceinline__ DeltaSpan span(const Round& round) const { return span_of(round, into, ring, length); }
  __device__ __forceinline__ int rows(const Round& round) const { return min(length + round.width - start, BLOCK); }
  // On to the next block of the same sequence.
  __device__ __forceinline__ void advance(const Round& round) {
    start += BLOCK, turn += BLOCK;
    if (turn >= round.ring_rows) turn -= round.ring_rows;
  }
};

// Asks for a block's rows of `count` parts from `first` on, the three before the block's first included. A lane finds where
// one row begins for all; it has eight neighbours of every second row. Zeros where no row was.
__device__ __forceinline__ void ask_rows(RoundPair& pair, const DeltaSpan& span, const Place& place, int real, int first,
                                         int count, int lane) {
  constexpr int LANES = DIM / 8, TWO = WARP / LANES;
  constexpr unsigned ROW_BYTES = DIM * sizeof(half_t), PART_BYTES = (TAPS - 1 + BLOCK) * ROW_BYTES;
  const int row = lane + 1 - TAPS, last = TAPS - 1 + real, column = lane % LANES * 8;
  const bool there = row < real && place.start + row >= 0;
  const unsigned all = __ballot_sync(~0u, there);
  const half_t* own = (there ? span.row(place.start + row, place.turn + row) : span.into) + span.channel(first);
  const int other = span.channel(first + count - 1) - span.channel(first);
  const unsigned to = shared_address(&pair.raw[first][0][column]);
#pragma unroll 1
  for (int four = 0; four < last; four += 2 * TWO) {
    const int begin = four + lane / LANES;
    const half_t* from[2];
#pragma unroll
    for (int turn = 0; turn < 2; ++turn)
      from[turn] =
          reinterpret_cast<const half_t*>(__shfl_sync(~0u, reinterpret_cast<unsigned long long>(own), begin + turn * TWO)) +
          column;
#pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      const int each = begin + turn * TWO;
      if (each < last) copy_sixteen(to + each * ROW_BYTES, from[turn], all >> each & 1);
      if (each < last && count > 1) copy_sixteen(to + PART_BYTES + each * ROW_BYTES, from[turn] + other, all >> each & 1);
    }
  }
  arrive_with_copies(shared_address(&pair.arrived[first / 2]));
}

// What the model says of rates and decays: of one head in each half of a warp, a lane for each row.
struct Gates {
  half_t logit = 0, slope = 0;

  __device__ __forceinline__ void ask(const DeltaSpan& span, const Place& place, int real, int own, int lane) {
    const int row = lane % BLOCK;
    logit = slope = 0;
    if (row >= real) return;
    const half_t* gate = span.row(place.start + row, place.turn + row) + span.gates + own;
    logit = gate[0], slope = gate[span.gates_apart];
  }
  // Sets them; those of a row of the span are kept in the ring, too.
  __device__ __forceinline__ void set(PairBlock& block, const DeltaSpan& span, const Place& place, int real, float decay,
                                      float bias, int own, int lane) const {
    const int row = lane % BLOCK;
    if (row < real && place.start + row >= span.length) {
      half_t* kept = span.kept_row(place.turn + row) + span.gates + own;
      kept[0] = logit, kept[span.gates_apart] = slope;
    }
    set_rate(block, logit, slope, row < real, decay, bias, row);
  }
};
