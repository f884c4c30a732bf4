// One walk of a warpgroup over an item whose rows are nodes: tiles that all see alike, then two steps along their paths.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/products.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"
#include "span_attention/hopper/steps.cuh"
#include "span_attention/hopper/walk.cuh"

// The highest of a thread's scores of a row.
template <int COUNT>
__device__ __forceinline__ float highest_of(float most, const float (&scores)[COUNT], int half) {
#pragma unroll
  for (int eight = 0; eight < COUNT / 4; ++eight)
    most = fmaxf(most, fmaxf(scores[eight * 4 + half * 2], scores[eight * 4 + half * 2 + 1]));
  return most;
}

template <int COUNT>
__device__ __forceinline__ void weigh_half(float (&scores)[COUNT], int half, float scale, float best) {
  const float offset = __fsub_rn(0.f, best);
#pragma unroll
  for (int eight = 0; eight < COUNT / 4; ++eight) {
    const int number = eight * 4 + half * 2;
    scores[number] = exp2_approx_ftz(__fmaf_rn(scores[number], scale, offset));
    scores[number + 1] = exp2_approx_ftz(__fmaf_rn(scores[number + 1], scale, offset));
  }
}

// Hides what a tile has from a column on, which whole steps begin at.
__device__ __forceinline__ void hide_from(float (&scores)[TOKENS / 2], int column) {
#pragma unroll
  for (int number = 0; number < TOKENS / 2; ++number)
    if (number / 4 * 8 >= column) scores[number] = -INFINITY_F;
}

__device__ __forceinline__ void choose(unsigned (&one)[4], const unsigned (&weights)[TOKENS / 16][4], int part) {
#pragma unroll
  for (int each = 0; each < TOKENS / 16; ++each)
#pragma unroll
    for (int number = 0; number < 4; ++number)
      if (each == part) one[number] = weights[each][number];
}

// Adds what nodes see of a tile: steps before that of the length, then one or two along their paths.
__device__ __forceinline__ void add_nodes(const Walk& walk, const Steps& steps, Part& part, const TwoTiles& values,
                                          const unsigned (&weights)[TOKENS / 16][4], int context, const StepScores& own,
                                          int step, int behind) {
#pragma unroll 1
  for (int each = 0; each < context / STEP; ++each) {
    unsigned some[4];
    choose(some, weights, each);
    Steps::add_lines(part.sum, some, values.line(values.first + each * STEP + walk.lane % 16), walk.lane);
  }
#pragma unroll 1
  for (; step < behind; ++step) {
    unsigned some[4];
#pragma unroll
    for (int each = 0; each < 4; ++each) {
      const float one = step ? own.of[1][each * 2] : own.of[0][each * 2];
      const float other = step ? own.of[1][each * 2 + 1] : own.of[0][each * 2 + 1];
      some[each] = each % 2 < HALVES ? pair_of(one, other) : 0;
    }
    float sums[4] = {part.mass[0], part.mass[0], part.mass[HALVES - 1], part.mass[HALVES - 1]};
    multiply_ones(sums, some);
    part.mass[HALVES - 1] = sums[2], part.mass[0] = sums[0];
    steps.add(part.sum, some, walk.item.span, step, values, walk.lane);
  }
}

// Takes the tile of the length and the one behind it, which lie in the ring's first stages. What stands before comes by `come`:
// the whole of the splits before, and the part of one that goes on. Where splits have one tile each it is asked for late.
template <typename Come>
__device__ __forceinline__ void walk_nodes(const Walk& walk, int last, KvRing ring, const Steps& steps, Part& whole,
                                           const Come& come) {
  const int context = steps.first - last * TOKENS;
  const bool each_apart = walk.size == 1;
  int sizes[HALVES];
#pragma unroll
  for (int half = 0; half < HALVES; ++half) sizes[half] = walk.item.span.split(walk.row + half * HALF_ROWS);
  await_phase(ring.full_at(), 0);
  const unsigned keys = ring.keys(), values = ring.values();
  if (last + 1 < walk.end_tile) {
    ring.next();
    await_phase(ring.full_at(), 0);
  }
  const TwoTiles key_lines{keys, ring.keys(), last * TOKENS}, value_lines{values, ring.values(), last * TOKENS};
  float scores[TOKENS / 2];
  clear(scores);
  ask_scores(scores, walk.queries, keys);
  end_products();
  StepScores own;
  steps.score(own, walk.item.span, key_lines, walk.queries + threadIdx.x % THREADS / 32 * 16 * PANEL_BYTES, walk.row,
              walk.lane);
  await_products<0>();
  hold(scores);
  hide_from(scores, context);
  Part part;
  part.clear();
  if (!each_apart) come(part, whole);
#pragma unroll 1
  for (int tile = last; tile < walk.end_tile; ++tile) {
    const bool one = tile == last, other = !one || !steps.apart();  // of the steps of nodes
    float higher[HALVES], fade[HALVES];
    unsigned weights[TOKENS / 16][4];
    clear(weights);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      float most = highest_of(-INFINITY_F, scores, half);
      if (one) most = highest_of(most, own.of[0], half);
      if (other) most = highest_of(most, own.of[1], half);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const bool begins = tile % sizes[half] == 0;
      const float best = begins ? NOTHING : part.best[half];
      higher[half] = fmaxf(best, upwards(__fmul_rn(most, walk.scale)));
      fade[half] = fade_of(__fsub_rn(best, higher[half]));
      weigh_half(scores, half, walk.scale, higher[half]);
      if (one) weigh_half(own.of[0], half, walk.scale, higher[half]);
      if (other) weigh_half(own.of[1], half, walk.scale, higher[half]);
      if (begins && tile > 0 && !(each_apart && one)) whole.fold(part, half);
    }
    walk.take(part, weights, scores, higher, fade);
    hide_from(scores, 0);
    add_nodes(walk, steps, part, value_lines, weights, one ? context : 0, own, one ? 0 : 1, other ? 2 : 1);
    if (each_apart && one) come(part, whole);
  }
  whole.fold(part);
}
