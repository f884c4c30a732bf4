// The warps with states: each has 16 columns of a head, which it asks for while it is busy with the head before.

#pragma once

#include "barrier.cuh"
#include "pdl.cuh"
#include "warp.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/ends.cuh"
#include "gated_delta/rounds/many/items.cuh"
#include "gated_delta/rounds/many/pair.cuh"
#include "gated_delta/rounds/memory.cuh"
#include "gated_delta/rounds/rows.cuh"
#include "gated_delta/rounds/state.cuh"

// Where a warp's columns lie in shared memory, in bytes: eight rows after eight, of these pairs of rows in 128 bytes, and
// 16 of these at a place that the pair gives.
constexpr int EIGHT_BYTES = 8 * STATE_COLUMNS * 4;
__device__ __forceinline__ unsigned state_at(int row, int column) {
  return row / 2 * 128 + ((row % 2 * 4 + column / 4 ^ row / 2 * 2) << 4) + column % 4 * 4;
}

__device__ __forceinline__ void ask_state(unsigned columns, const float* state, bool there, int lane) {
  const unsigned to = columns + state_at(lane / 4, lane % 4 * 4);
  const float* from = state + lane / 4 * DIM + lane % 4 * 4;
  // Zeros where nothing was folded.
#pragma unroll
  for (int eight = 0; eight < DIM / 8; ++eight) copy_sixteen(to + eight * EIGHT_BYTES, from + eight * 8 * DIM, there);
}

__device__ __forceinline__ void await_state() {
  await_copies();
  __syncwarp();
}

// As `load_state` does, from shared memory.
template <int COUNT>
__device__ __forceinline__ void take_columns(unsigned columns, float (&x)[COUNT], int first, int lane) {
  const int row = lane % 4 * 2, column = lane / 4 * 2;
  const unsigned own[2] = {columns + state_at(row, column), columns + state_at(row + 1, column)};
#pragma unroll
  for (int pair = 0; pair < COUNT / 2; ++pair) {
    const int number = pair / 2 * 4 + pair % 2;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x[number]), "=f"(x[number + 2])
                 : "r"(own[pair % 2] + (first / 4 + pair / 2) * EIGHT_BYTES)
                 : "memory");
  }
}

// Where a number lies in a lane's part of local memory: both columns side by side, as they are copied.
__device__ constexpr int beside(int number) { return number / 4 * 4 + number % 2 * 2 + number / 2 % 2; }

// Where the state of the next head lies; nothing where there is none.
struct Ahead {
  const float* state;
  bool there;
};

__device__ __forceinline__ void ask_ahead(unsigned columns, const Ahead& ahead, int lane) {
  if (ahead.state) ask_state(columns, ahead.state, ahead.there, lane);
}

// One head's state meets one block. What is next is asked for as soon as its place is free.
__device__ __forceinline__ void meet_block(PairBlock& block, unsigned columns, float* state, float* aside, const Ahead& ahead,
                                           bool first, bool last, bool complete, unsigned full, unsigned parity, int warp,
                                           int lane) {
  const int column = warp * STATE_COLUMNS + lane / 4 * 2;
  State operands;
  {
    float x[DIM / 2];
    if (first) {
      await_state();
      take_columns(columns, x, 0, lane);
      // What was copied is in registers, so the next state may come.
      __syncwarp();
      if (last) ask_ahead(columns, ahead, lane);
    } else {
#pragma unroll
      for (int number = 0; number < DIM / 2; ++number) x[number] = aside[beside(number)];
    }
    operands.take(x);
  }
  await_phase(full, parity);
  if (last) return read_last(block, operands, column, lane);
  float found[LINES / 2], x[DIM / 2];
  operands.times(shared_address(block.factors), found);
  add_bases(block, found, column, lane);
  const auto was = [&](int from, float (&old)[LOADED]) {
    if (first) return take_columns(columns, old, from, lane);
#pragma unroll
    for (int each = 0; each < LOADED; ++each) old[each] = aside[beside(from + each)];
  };
  advance(block, found, state, complete, was, x, lane);
#pragma unroll
  for (int number = 0; number < DIM / 2; ++number) aside[beside(number)] = x[number];
  __syncwarp();
  if (first) ask_ahead(columns, ahead, lane);
}

__device__ __forceinline__ void advance_states(RoundPair& pair, const Round& round, float* states, const half_t* norm,
                                               half_t* out, float eps, int warp, int lane) {
  int sequence = blockIdx.y, turn = 0;
  float aside[TOGETHER_HEADS][DIM / 2];
  asm volatile("" ::"l"(aside) : "memory");
  const unsigned columns = shared_address(pair.states[warp]);
  float* own_states = states + (size_t)round.head * (DIM * DIM) + warp * STATE_COLUMNS;
  const size_t slot_size = (size_t)round.heads * (DIM * DIM);
  SequenceItem item(round, sequence);
  const float* first = own_states + item.slot * slot_size;
  ask_ahead(columns, {first, item.folded > 0}, lane);
  await_previous();
#pragma unroll 1
  for (; sequence < round.batch; sequence += gridDim.y) {
    const int after = sequence + gridDim.y, reach = item.length + round.width, fold = item.length / BLOCK * BLOCK;
    const SequenceItem next(round, min(after, round.batch - 1));
    const float* behind = after < round.batch ? own_states + next.slot * slot_size : nullptr;
#pragma unroll 1
    for (int start = item.folded; start < reach; start += BLOCK, ++turn) {
      const int old = min(max(item.length - start, 0), BLOCK), real = min(reach - start, BLOCK);
#pragma unroll 1
      for (int own = 0; own < round.count; ++own) {
        asm volatile("" : "+r"(lane), "+r"(warp));  // what follows from them is computed again, not kept
        __builtin_assume(lane >= 0 && lane < WARP);
        float* state = own_states + item.slot * slot_size + own * (DIM * DIM);
        const bool same = own + 1 < round.count;
        const Ahead ahead{same ? state + DIM * DIM : behind, (same ? item.folded : next.folded) > 0};
        PairBlock block(pair, own, turn, true);
        DeltaSpan span = span_of(round, item, sequence);
        span.head += own;
        uint2 z[2], weight;
        load_ends(span, norm, start, old, real, z, weight, warp, lane);
        meet_block(block, columns, state, aside[own], ahead, start == item.folded, start + BLOCK >= reach,
                   start + BLOCK == fold, shared_address(&pair.full[own]), turn & 1, warp, lane);
        meet(OF_STATES);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const int row = old + warp + part * WARPS, number = sequence * round.width + (start + row - item.length);
          half_t* to = out + ((size_t)number * round.heads + round.head + own) * DIM + lane * 4;
          if (row < real) end_row(block, row, lane, z[part], weight, eps, to);
        }
        __syncwarp();
        if (lane == 0) arrive(shared_address(&pair.empty[own]));
      }
    }
    item = next;
  }
}
