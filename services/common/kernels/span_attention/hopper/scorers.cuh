// Warpgroups that score and weigh, and take tiles in turn. Keys are the lines of their products and rows of queries the
// columns: a warp has sixteen keys of all rows. What is highest in a row goes from one to the other, tile by tile.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "pdl.cuh"
#include "warp.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/handed.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/left_codes.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

// One of two numbers, by a mask of all bits: a compiler that chose among places would keep them in memory.
__device__ __forceinline__ float chosen(int first, float one, float other) {
  return __int_as_float(__float_as_int(one) & first | __float_as_int(other) & ~first);
}

// Stores blocks as `load_turned` loads them.
__device__ __forceinline__ void store_turned(unsigned to, const unsigned (&blocks)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(blocks[0]),
               "r"(blocks[1]), "r"(blocks[2]), "r"(blocks[3])
               : "memory");
}

__device__ __forceinline__ void store_turned(unsigned to, unsigned first, unsigned second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second) : "memory");
}

// Queries of an item, the even ones of sixteen numbers before the odd ones, as `widen_keys` has them. Rows behind the last are zero.
__device__ __forceinline__ void copy_queries(unsigned to, const unsigned short* q, const ItemEnds& ends, const Item& item) {
  constexpr int PIECES_OF_ROW = SIZE / 16;
  for (int each = threadIdx.x; each < COUNTED_ROWS * PIECES_OF_ROW; each += KEY_GROUPS * THREADS) {
    const int line = each / PIECES_OF_ROW, piece = each % PIECES_OF_ROW, row = item.span.first_row + line;
    uint4 low = {}, high = {};
    if (row < item.span.rows()) {
      const uint4* from = reinterpret_cast<const uint4*>(q + ends.line(item, row) * SIZE + piece * 16);
      low = from[0], high = from[1];
    }
    const unsigned at = to + piece / 4 * QUERY_PANEL + line * PANEL_BYTES;
    const auto half = [&](int select) {
      return make_uint4(__byte_perm(low.x, low.y, select), __byte_perm(low.z, low.w, select),
                        __byte_perm(high.x, high.y, select), __byte_perm(high.z, high.w, select));
    };
    store_shared(at + ((piece % 4 * 2 ^ line % 8) << 4), half(0x5410));
    store_shared(at + ((piece % 4 * 2 + 1 ^ line % 8) << 4), half(0x7632));
  }
}

struct Scorer {
  Chain chain;
  unsigned queries;
  float scale;
  int own, lane, warp;  // which of the scorers, and its warp
  unsigned middles;
  unsigned turn;   // parity of the next turn of the one before it
  int place = 0;   // where its warps leave what they find
  float one, two;  // what is highest in two rows of a lane, which others have too

  __device__ __forceinline__ Scorer(const Chain& chain, unsigned queries, float scale, int own, int warp, int lane, int width)
      : chain(chain),
        queries(queries),
        scale(scale),
        own(own),
        lane(lane),
        warp(warp),
        middles(middles_of(width)),
        turn(own == 0) {}

  // Asks for scores of a tile's keys.
  __device__ __forceinline__ void ask(float (&scores)[SUMS], unsigned keys) const {
    const unsigned from = piece_at(warp * 16 + lane % 16, lane / 16);
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel) {
      unsigned words[2][4], left[4][4];
#pragma unroll
      for (int each = 0; each < 2; ++each) load_blocks(words[each], keys + (from ^ (panel * 4 + each * 2) << 4));
#pragma unroll
      for (int part = 0; part < 4; ++part)
        widen_keys(left[part], words[part / 2][part % 2 * 2], words[part / 2][part % 2 * 2 + 1], middles);
      if (panel == 0) hold(scores);
      hold(left);
      begin_products();
#pragma unroll
      for (int part = 0; part < 4; ++part)
        multiply_lines(scores, left[part], descriptor(queries + panel * QUERY_PANEL) + 2 * part, panel + part > 0);
      end_products();
    }
  }

  // Two to the power of a key's exponent, of which WHOLE has been taken already, times the scale: this rounds as if numbers were
  // multiplied. What no row sees may have any exponent.
  __device__ __forceinline__ float factor(int exponent) const {
    return exponent == NO_NUMBER ? __int_as_float(0x7FC00000)
                                 : __fmul_rn(__int_as_float((exponent - WHOLE + 127) << 23), scale);
  }

  // Scores that a row does not see.
  __device__ __forceinline__ void hide(float (&scores)[SUMS], float (&factors)[2], const Span& span, int tile) const {
    const int first = tile * TOKENS + warp * 16 + lane / 4;
#pragma unroll
    for (int key = 0; key < 2; ++key) {
      const bool lost = factors[key] != factors[key];
      if (lost) factors[key] = scale;
#pragma unroll
      for (int eight = 0; eight < EIGHTS; ++eight) {
#pragma unroll
        for (int each = 0; each < 2; ++each) {
          const int row = span.first_row + eight * 8 + lane % 4 * 2 + each;
          float& score = scores[eight * 4 + key * 2 + each];
          if (first + key * 8 > span.last_seen(row))
            score = -INFINITY_F;
          else if (lost)
            score = __int_as_float(0x7FC00000);
        }
      }
    }
  }

  // The highest of a warp's scores in each row, of which a lane is left with two: it gives half of its rows away at each step.
  __device__ __forceinline__ void find_highest(const float (&scores)[SUMS], const float (&factors)[2]) const {
    float most[EIGHTS * 2];
#pragma unroll
    for (int each = 0; each < EIGHTS * 2; ++each) {
      const int number = each / 2 * 4 + each % 2;
      most[each] = fmaxf(__fmul_rn(scores[number], factors[0]), __fmul_rn(scores[number + 2], factors[1]));
    }
    give_away<EIGHTS * 2>(most, 16);
    const int eight = lane / 4 * EIGHTS / 8;
    store_pair(chain.highest_at(place, own, warp) + (eight * 8 + lane % 4 * 2) * 4, upwards(most[0]), upwards(most[1]));
  }
  template <int COUNT>
  __device__ __forceinline__ void give_away(float (&most)[EIGHTS * 2], int apart) const {
    if (apart < 4) return;
    constexpr int LEFT = COUNT > 2 ? COUNT / 2 : 2;
    const int upper = lane & apart ? -1 : 0;
#pragma unroll
    for (int each = 0; each < LEFT; ++each) {
      const float own_most = COUNT > 2 ? chosen(upper, most[each + COUNT - LEFT], most[each]) : most[each];
      const float given = COUNT > 2 ? chosen(upper, most[each], most[each + COUNT - LEFT]) : most[each];
      most[each] = fmaxf(own_most, __shfl_xor_sync(~0u, given, apart));
    }
    if (apart > 4) give_away<LEFT>(most, apart / 2);
  }

  // Raises what is highest by a tile's scores, when the tile before has done so. All warps do, and one tells the adders and the next
  // scorer; a split begins with nothing.
  __device__ __forceinline__ void take_turn(const Slots& to, bool first, bool last, bool opens) {
    const unsigned at = lane * 2 % COUNTED_ROWS * 4;
    float2 most = load_pair(chain.highest_at(place, own, 0) + at);
#pragma unroll
    for (int other = 1; other < 4; ++other) {
      const float2 found = load_pair(chain.highest_at(place, own, other) + at);
      most.x = fmaxf(most.x, found.x), most.y = fmaxf(most.y, found.y);
    }
    place ^= 1;
    await_phase(chain.turns + (own == 0 ? KEY_GROUPS - 1 : own - 1) * 8, turn);
    turn ^= 1;
    float2 before = load_pair(to.best_before() + at);
    if (first) before.x = before.y = NOTHING;
    one = fmaxf(before.x, most.x), two = fmaxf(before.y, most.y);
    if (warp == 0) {
      store_pair(to.best_at() + at, one, two);
      if (last) end_split(to, at, opens);
    }
    __syncwarp();
    if (lane == 0) arrive(chain.turns + own * 8);
    if (warp > 0) return;
    const unsigned fades = __ballot_sync(~0u, one != before.x || two != before.y);
    store_pair(to.fades_at() + at, fade_of(__fsub_rn(before.x, one)), fade_of(__fsub_rn(before.y, two)));
    if (lane == 0) store_shared(to.flags_at(), __uint_as_float(fades));
  }

  // Tells how much this split and those before it, if it is not the first one, fade by the higher one of their best.
  __device__ __forceinline__ void end_split(const Slots& to, unsigned at, bool opens) const {
    float2 before = load_pair(chain.ended + at);
    if (opens) before.x = before.y = NOTHING;
    const float top = fmaxf(one, before.x), other = fmaxf(two, before.y);
    __syncwarp();
    store_pair(chain.ended + at, top, other);
    store_pair(to.before_at() + at, fade_of(__fsub_rn(before.x, top)), fade_of(__fsub_rn(before.y, other)));
    store_pair(to.after_at() + at, fade_of(__fsub_rn(one, top)), fade_of(__fsub_rn(two, other)));
  }

  // Weights in rows of keys, as products take them.
  __device__ __forceinline__ void weigh(const float (&scores)[SUMS], const float (&factors)[2], const Slots& to) const {
    float2 best[EIGHTS];
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      const int from = eight * 4 + lane % 4;
      best[eight] = EIGHTS == 1 ? make_float2(one, two) : make_float2(__shfl_sync(~0u, one, from), __shfl_sync(~0u, two, from));
    }
    const auto pair = [&](int eight, int key) {
      const int number = eight * 4 + key * 2;
      return pair_of(exp2_approx_ftz(__fmaf_rn(scores[number], factors[key], -best[eight].x)),
                     exp2_approx_ftz(__fmaf_rn(scores[number + 1], factors[key], -best[eight].y)));
    };
    const int line = lane / 16 * 8 + lane % 8;
    const unsigned at = to.weights_at() + line * PANEL_BYTES + ((warp * 2 + lane / 8 % 2 ^ lane % 8) << 4);
    if constexpr (EIGHTS == 1) {
      store_turned(at, pair(0, 0), pair(0, 1));
    } else {
#pragma unroll
      for (int eight = 0; eight < EIGHTS; eight += 2) {
        const unsigned blocks[4] = {pair(eight, 0), pair(eight, 1), pair(eight + 1, 0), pair(eight + 1, 1)};
        store_turned(at + eight * 8 * PANEL_BYTES, blocks);
      }
    }
  }

  __device__ __forceinline__ void take(const LoadRing& ring, const Slots& to, unsigned exponents, const Item& item, int tile,
                                       bool first, bool last, bool opens) {
    float scores[SUMS], factors[2];
    await_phase(ring.full_at(), ring.parity);
    ask(scores, ring.keys());
#pragma unroll
    for (int key = 0; key < 2; ++key)
      factors[key] = factor(
          load_exponent(exponents + ring.stage * 2 * EXPONENT_TILE + (warp * 16 + key * 8 + lane / 4) * KV_HEADS + item.head));
    __syncwarp();
    if (lane == 0) arrive(ring.empty_at());  // keys lie in registers
    await_phase(to.empty_at(), to.parity ^ 1);
    await_products<0>();
    hold(scores);
    if (tile * TOKENS + TOKENS > item.span.seen_from(item.span.first_row)) hide(scores, factors, item.span, tile);
    find_highest(scores, factors);
    sync_threads(1 + own, THREADS);
    take_turn(to, first, last, opens);
    weigh(scores, factors, to);
    publish();
    __syncwarp();
    if (lane == 0) arrive(to.full_at());
  }
};

// All items' tiles.
__device__ __forceinline__ void score_items(const Items& items, const ItemEnds& ends, Scorer& scorer, LoadRing ring, Slots to,
                                            unsigned exponents, const unsigned short* q) {
  await_previous();
  int turn = 0;
  for (int round = 0; items.index(round) < items.count(); ++round) {
    const Item item = items.item(items.lead(items.index(round)));
    if (round > 0) sync_threads(1 + KEY_GROUPS, KEY_GROUPS * THREADS);
    copy_queries(scorer.queries, q, ends, item);
    publish_shared(1 + KEY_GROUPS, KEY_GROUPS * THREADS);
    walk_sizes(items, item, [&](const SplitSteps& steps) {
      steps.each([&](int tile, bool first, bool last) {
        if (turn == scorer.own) scorer.take(ring, to, exponents, item, tile, first, last, tile < steps.begin + steps.size);
        if (++turn == KEY_GROUPS) turn = 0;
        ring.next(), to.next();
      });
    });
  }
}
