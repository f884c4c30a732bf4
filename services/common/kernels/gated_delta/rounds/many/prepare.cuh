// The warps that prepare: all that no state enters, of one block of two heads after the other. They are up to a block ahead
// of the warps with states.

#pragma once

#include "barrier.cuh"
#include "pdl.cuh"
#include "warp.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/block.cuh"
#include "gated_delta/rounds/factors.cuh"
#include "gated_delta/rounds/many/convolutions.cuh"
#include "gated_delta/rounds/many/items.cuh"
#include "gated_delta/rounds/many/pair.cuh"
#include "gated_delta/rounds/many/projections.cuh"
#include "gated_delta/rounds/rows.cuh"

// Products of rows with keys, and the inverses' beginnings, of both heads: heads that share queries and keys have the same
// products, and differ in rates and decays.

// Warps 0 and 1 make those of keys with keys, warps 2 and 3 those of queries with keys; each has eight columns.
__device__ __forceinline__ void couple_heads(RoundPair& pair, int count, bool read, int turn, int warp, int lane) {
  const bool scores = warp >= 2;
  const int first = warp % 2 * 8, column = first + lane % 4 * 2;
  if (scores && !read) return;
  const Couples couples(PairBlock(pair, 0, turn), scores, first, lane);
  float decays[TOGETHER_HEADS][4], sums[4] = {0.f, 0.f, 0.f, 0.f};
  couples.add(0, sums);
  couples.add(1, sums);
  // Decays are computed while tensor cores are busy.
#pragma unroll
  for (int own = 0; own < TOGETHER_HEADS; ++own) decays_between(PairBlock(pair, own, turn), column, lane, decays[own]);
  couples.add(2, sums);
#pragma unroll
  for (int own = 0; own < TOGETHER_HEADS; ++own) {
    if (own >= count) break;
    PairBlock block(pair, own, turn);
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int row = lane / 4 + below * 8;
      float met[2], solved[2];
#pragma unroll
      for (int each = 0; each < 2; ++each)
        met[each] = __fmul_rn(__fmul_rn(sums[below * 2 + each], TILE_BACK), decays[own][below * 2 + each]);
      if (scores) {
        const float2 both = make_float2(row >= column ? met[0] : 0.f, row > column ? met[1] : 0.f);
        *reinterpret_cast<float2*>(&block.reads[row][column]) = both;
        continue;
      }
      // The inverse begins as that of blocks of two rows.
      const float beta = block.beta[row];
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        met[each] = row > column + each ? __fmul_rn(met[each], beta) : 0.f;
        solved[each] = __fsub_rn(row == column + each ? 1.f : 0.f, row / 2 == column / 2 ? met[each] : 0.f);
      }
      *reinterpret_cast<float2*>(&block.lower[row][column]) = make_float2(met[0], met[1]);
      *reinterpret_cast<float2*>(&block.solved[row][column]) = make_float2(solved[0], solved[1]);
    }
  }
}

// A warp's share of what rows are convolved with: asked for first, stored when other things have been done.
struct Taps {
  static constexpr int EACH = TAPS * (2 + TOGETHER_HEADS) / WARPS;
  float4 fours[EACH];

  __device__ __forceinline__ Taps(const DeltaSpan& span, const float* conv, int stride, int parts, int warp, int lane) {
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
      const int number = warp + each * WARPS, tap = number / parts, part = number % parts;
      if (tap < TAPS) fours[each] = *reinterpret_cast<const float4*>(conv + tap * stride + span.channel(part) + lane * 4);
    }
  }
  __device__ __forceinline__ void store(RoundPair& pair, int parts, int warp, int lane) const {
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
      const int number = warp + each * WARPS, tap = number / parts, part = number % parts;
      if (tap < TAPS) *reinterpret_cast<float4*>(&pair.conv[tap][part][lane * 4]) = fours[each];
    }
  }
};

// The next rows of values that no warp has: those of warps that do nothing else first are given.
__device__ __forceinline__ int take_unit(RoundPair& pair, int lane) {
  int unit = 0;
  if (lane == 0) unit = atomicAdd(&pair.taken, 1);
  return __shfl_sync(~0u, unit, 0);
}
__device__ __forceinline__ void give_units(RoundPair& pair, int lane) {
  if (lane == 0) pair.taken = WARPS / 2;
}

// Rows that are absent weigh nothing, but must be numbers: once at the beginning all are zero.
__device__ __forceinline__ void clear(RoundPair& pair, int warp, int lane) {
  const float none[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 1
  for (int number = warp; number < 2 * BLOCK; number += WARPS) {
    const int which = number / BLOCK, row = number % BLOCK;
    PairBlock block(pair, which, which);
    clear_row(block, row, lane);
    store_halves(block.values, row, lane * 4, none, 1.f);
  }
}

// Keys of a block, and queries of those rows that are read: of other queries only whether they are numbers. Warps take turns
// at two rows of either; one of them sets rates at first. Tells whether a warp's rows have one that is no number.
__device__ __forceinline__ bool make_queries(RoundPair& pair, const DeltaSpan& span, const Place& place, int old, int real,
                                             int turn, int warp, int lane) {
  const int keys = (real + ABREAST - 1) / ABREAST, unread = old / ABREAST, units = keys + keys - unread;
  bool broken = false;
#pragma unroll 1
  for (int unit = warp; unit < units; unit = unit < SETS_RATES ? 2 * SETS_RATES - unit : unit + WARPS) {
    const int part = unit < keys, row = (part ? unit : unit - keys + unread) * ABREAST;
    broken |= make_directions(pair, span, place, part, turn, row, real, lane);
    if (unit < unread) broken |= check_queries(pair, span, place, row, real, lane);
  }
  return broken;
}

// Values of both heads: a warp that has done what else is to do takes the next two rows of one.
__device__ __forceinline__ void make_all_values(RoundPair& pair, const DeltaSpan& span, const Place& place, int real, int turn,
                                                int count, int warp, int lane) {
  const int units = count * ((real + ABREAST - 1) / ABREAST), first = warp - WARPS / 2;
  const bool alone = count < TOGETHER_HEADS;
#pragma unroll 1
  for (int unit = first < 0 ? take_unit(pair, lane) : first; unit < units; unit = take_unit(pair, lane))
    make_values(pair, span, place, alone ? 2 : 2 + unit % 2, turn, (alone ? unit : unit / 2) * ABREAST, real, lane);
}

// Rows of which a query or a key is no number count as absent; there is one.
__device__ __forceinline__ void clear_ill(RoundPair& pair, int real, int turn, int warp, int lane) {
  PairBlock block(pair, 0, turn);
  const int own = lane % BLOCK;
  const unsigned broken = __ballot_sync(~0u, own < real && block.ill[0][own] + block.ill[1][own] != 0.f);
#pragma unroll 1
  for (int row = warp; row < BLOCK; row += WARPS)
    if (broken >> row & 1) clear_row(block, row, lane);
  meet(OF_ROWS);
}

// What reads and updates weigh keys and values by: warps take turns at lines of both heads.
__device__ __forceinline__ void weigh_heads(RoundPair& pair, int count, int old, int real, bool moves, int turn, int warp,
                                            int lane) {
  // Where no block follows, lines of rows that are absent or are not of the span are not read. A warp has two of a head.
  const int from = moves ? 0 : old / 2, last = count * ((moves ? BLOCK / 2 : (real + 1) / 2) - from);
  const bool alone = count < TOGETHER_HEADS;
#pragma unroll 1
  for (int unit = warp; unit < last; unit += WARPS) {
    PairBlock block(pair, alone ? 0 : unit % TOGETHER_HEADS, turn);
    weigh(block, (from + (alone ? unit : unit / TOGETHER_HEADS)) * WARP + lane, moves);
  }
}

// Which of a block's eights of rows have one that is read.
__device__ __forceinline__ unsigned read_eights(int old, int real) {
  return (old < BLOCK / 2) | (old < BLOCK && real > BLOCK / 2) << 1;
}

// Factors and bases of a head, handed over to the warps with states when those have left what lay there. `read` has the
// eights of lines that are read.
__device__ __forceinline__ void hand_over(RoundPair& pair, int own, unsigned read, bool moves, int turn, int warp, int lane) {
  if (turn > 0) await_phase(shared_address(&pair.empty[own]), (turn - 1) & 1);
  PairBlock block(pair, own, turn);
  if (read) factor<true>(block, warp, lane, 1, read);
  if (moves) {
    factor<false>(block, warp, lane);
    Ready& ready = pair.ready[own];
    if (warp == 0 && lane < BLOCK) ready.since[lane] = block.since[lane], ready.until[lane] = block.until[lane];
  }
  publish();
  __syncwarp();
  if (lane == 0) arrive(shared_address(&pair.full[own]));
}

__device__ __forceinline__ void prepare(RoundPair& pair, const Round& round, const float* conv, const float* decays,
                                        const float* bias, int stride, int warp, int lane) {
  const int own_gate = lane / BLOCK % round.count, apart = gridDim.y, parts = 2 + round.count;
  Place place(round, blockIdx.y, SequenceItem(round, blockIdx.y));
  Gates gates;
  {
    const DeltaSpan span = place.span(round);
    const Taps taps(span, conv, stride, parts, warp, lane);
    clear(pair, warp, lane);
    taps.store(pair, parts, warp, lane);
    await_previous();
    const int real = place.rows(round);
    if (warp == ASKS) ask_rows(pair, span, place, real, 0, 2, lane);
    if (warp == FINDS_PLACES) ask_rows(pair, span, place, real, 2, round.count, lane), give_units(pair, lane);
    if (warp == SETS_RATES) gates.ask(span, place, real, own_gate, lane);
  }
  const float decay = decays[round.head + own_gate], by = bias[round.head + own_gate];
  SequenceItem next(round, min(place.sequence + apart, round.batch - 1));
  // One warp finds where the blocks behind lie: of the same sequence, or of the next one, which was asked for before.
  const auto tell_place = [&](Place behind, int turn) {
    if (behind.start + BLOCK < behind.length + round.width)
      behind.advance(round);
    else
      behind = Place(round, behind.sequence + apart, next),
      next = SequenceItem(round, min(behind.sequence + apart, round.batch - 1));
    if (lane == 0) pair.places[turn % 2] = behind;
  };
  if (warp == FINDS_PLACES) tell_place(place, 1);
  meet(OF_ROWS);
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    asm volatile("" : "+r"(lane));  // what follows from it is computed again, not kept
    __builtin_assume(lane >= 0 && lane < WARP);
    const Place here = place;
    const DeltaSpan span = here.span(round);
    const int real = here.rows(round), reach = here.length + round.width, old = min(max(here.length - here.start, 0), BLOCK);
    const bool moves = here.start + BLOCK < reach;
    const unsigned read = read_eights(old, real);
    if (warp == SETS_RATES) {
      PairBlock block(pair, own_gate, turn);
      gates.set(block, span, here, real, decay, by, own_gate, lane);
    }
    await_phase(shared_address(&pair.arrived[0]), turn & 1);
    const bool broken = make_queries(pair, span, here, old, real, turn, warp, lane);
    place = pair.places[(turn + 1) % 2];
    const bool more = place.sequence < round.batch;
    const int rows = more ? place.rows(round) : 0;
    if (meet_any(OF_ROWS, broken)) clear_ill(pair, real, turn, warp, lane);
    // Rows of the next block are asked for as soon as those before are made.
    if (warp == ASKS && more) ask_rows(pair, place.span(round), place, rows, 0, 2, lane);
    // What the inverse comes of, beside values.
    if (warp < WARPS / 2) {
      couple_heads(pair, round.count, read, turn, warp, lane);
      if (real > 2 && warp < 2) {
        meet_couple();
        PairBlock block(pair, warp, turn);
        if (warp < round.count) invert(block, real, lane);
      }
    }
    await_phase(shared_address(&pair.arrived[1]), turn & 1);
    make_all_values(pair, span, here, real, turn, round.count, warp, lane);
    if (warp == SETS_RATES) gates.ask(place.span(round), place, rows, own_gate, lane);
    if (warp == FINDS_PLACES) tell_place(place, turn);
    meet(OF_ROWS);
    if (warp == ASKS && more) ask_rows(pair, place.span(round), place, rows, 2, round.count, lane), give_units(pair, lane);
    weigh_heads(pair, round.count, old, real, moves, turn, warp, lane);
    meet(OF_ROWS);
#pragma unroll 1
    for (int own = 0; own < round.count; ++own) hand_over(pair, own, read, moves, turn, warp, lane);
    if (!more) break;
    meet(OF_ROWS);
  }
}
