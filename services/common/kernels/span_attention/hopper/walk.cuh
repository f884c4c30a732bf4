// One walk of a warpgroup over tiles of an item: scores, weights, and sums of weighted values.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/block.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/products.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"

// Where the next splits of a thread's rows begin: of all rows alike, or by the sizes of theirs. Warpgroups that share tiles have
// no registers to tell.
struct Edges {
  int edges[HALVES], sizes[HALVES];
  bool alike;

  __device__ __forceinline__ Edges(const Item& item, int begin, int size, int row)
      : alike(!TOGETHER || (ROW_GROUPS == 1 && item.least() == item.most())) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      sizes[half] = alike ? size : item.span.split(row + half * HALF_ROWS);
      edges[half] = begin + sizes[half];
    }
  }
  __device__ __forceinline__ bool at(int tile, int half) const { return tile == edges[half]; }
  __device__ __forceinline__ void next(int half) { edges[half] += sizes[half]; }
};

struct Walk {
  const ItemEnds& ends;
  const Item& item;
  unsigned queries;
  int group, size, begin, end_tile, row, lane;
  float scale;

  __device__ __forceinline__ int first_row() const {
    return item.span.first_row + group % ITEM_GROUPS / COLUMN_GROUPS * GROUP_ROWS;
  }
  __device__ __forceinline__ unsigned own(unsigned values) const {
    return values + (SPREAD > 1 ? 0 : ends.column / PANEL * HALF_TILE);
  }

  // Whether a tile's stage is filled again. CTAs of a cluster have one item, and free no other stages for one another: one of
  // them may have ended.
  __device__ __forceinline__ bool refilled(int tile) const { return SPREAD == 1 || tile + STAGES < end_tile; }

  // Copies of what lies behind the last position may be anything: as values they count as zero.
  __device__ __forceinline__ void clear_behind(unsigned values, int tile) const {
    const int place = threadIdx.x % THREADS / 2;
    if (place >= item.span.seen() - tile * TOKENS) {
#pragma unroll
      for (int part = 0; part < COLUMNS / 16; ++part)
        store_shared(own(values) + part / 4 * HALF_TILE + place * PANEL_BYTES + threadIdx.x % 2 * 64 + part % 4 * 16,
                     make_uint4(0, 0, 0, 0));
    }
    publish_shared(1 + group, THREADS);
  }

  // The rows of a drafter's block are asked for first, so that they come while the tile does.
  __device__ __forceinline__ void await_tile(const KvRing& ring, int tile) const {
    if (HAS_BLOCK && tile * TOKENS + TOKENS > item.span.paged()) {
      OwnRows own;
      own.ask(ends.block, item, tile);
      await_phase(ring.full_at(), ring.parity);
      own.store(ring.keys(), ring.values(), item, tile, ends.column);
      clear_behind(ring.values(), tile);
    } else {
      await_phase(ring.full_at(), ring.parity);
      if (!HAS_BLOCK && tile * TOKENS + TOKENS > item.span.seen()) clear_behind(ring.values(), tile);
    }
  }

  // A stage with the keys of a tile, or none behind the last one, and the values of an earlier one.
  __device__ __forceinline__ void await_skewed(const KvRing& ring, int tile) const {
    await_phase(ring.full_at(), ring.parity);
    const int earlier = tile - SKEW;
    if (earlier >= begin && earlier * TOKENS + TOKENS > item.span.seen()) clear_behind(ring.values(), earlier);
  }

  __device__ __forceinline__ void ask(float (&scores)[TOKENS / 2], const KvRing& ring, int tile) const {
    await_tile(ring, tile);
    // A block's rows had their registers.
    if (HAS_BLOCK && tile * TOKENS + TOKENS > item.span.paged()) clear(scores);
    begin_turn(group);
    ask_scores(scores, queries, ring.keys());
  }

  // The assembler would move a wait for products before what is weighed beside them, but not past a loop: that for a tile which
  // has come long since.
  static __device__ __forceinline__ void end_weighing(const KvRing& ring) {
    if constexpr (CODES) await_phase(ring.full_at(), ring.parity);
  }

  // Positions that a row does not see. Nodes have them hidden already.
  __device__ __forceinline__ void hide_last(float (&scores)[TOKENS / 2], int tile) const {
    if (tile * TOKENS + TOKENS <= item.span.seen_from(first_row())) return;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int last = item.span.last_seen(row + half * HALF_ROWS);
#pragma unroll
      for (int eight = 0; eight < TOKENS / 8; ++eight) {
        const int position = tile * TOKENS + eight * 8 + lane % 4 * 2, number = eight * 4 + half * 2;
        if (position > last) scores[number] = -INFINITY_F;
        if (position + 1 > last) scores[number + 1] = -INFINITY_F;
      }
    }
  }

  // Turns a half's scores into weights, by the highest and one before, and returns the highest of both.
  __device__ __forceinline__ float raise(float (&scores)[TOKENS / 2], int half, float before) const {
    const float best = fmaxf(before, highest(scores, half, scale)), offset = __fsub_rn(0.f, best);
#pragma unroll
    for (int eight = 0; eight < TOKENS / 8; ++eight) {
      const int number = eight * 4 + half * 2;
      scores[number] = exp2_approx_ftz(__fmaf_rn(scores[number], scale, offset));
      scores[number + 1] = exp2_approx_ftz(__fmaf_rn(scores[number + 1], scale, offset));
    }
    return best;
  }

  // Turns the scores of a tile into weights, by the highest so far; what was summed before fades.
  __device__ __forceinline__ void weigh(float (&scores)[TOKENS / 2], const Part& part, int tile, const Edges& edges,
                                        float (&higher)[HALVES], float (&fade)[HALVES]) const {
    if constexpr (!TREE) hide_last(scores, tile);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const float best = edges.at(tile, half) ? NOTHING : part.best[half];
      higher[half] = raise(scores, half, best);
      fade[half] = fade_of(__fsub_rn(best, higher[half]));
    }
    // The compiler finds no registers for products in flight where a half keeps its scores.
#pragma unroll
    for (int number = 0; number < TOKENS / 2; ++number)
      if (number % 4 / 2 >= HALVES) scores[number] = 0.f;
  }

  static __device__ __forceinline__ void take(Part& part, unsigned (&weights)[TOKENS / 16][4],
                                              const float (&scores)[TOKENS / 2], const float (&higher)[HALVES],
                                              const float (&fade)[HALVES]) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) part.fade(half, fade[half]), part.best[half] = higher[half];
    pack(weights, scores);
    if (!TAKE_TURNS) add_mass(part.mass, weights);
  }

  __device__ __forceinline__ void end_split(const Part& part, Part& whole, int tile) const {
    if (ALONE || item.program == 0)
      whole.fold(part);
    else
      ends.leave(part, item, tile - 1, size, row, lane);
  }

  // Ends the splits behind which a tile begins others.
  __device__ __forceinline__ void end_splits(const Part& part, Part& whole, Edges& edges, int tile) const {
    if (edges.alike && edges.at(tile, 0)) end_split(part, whole, tile);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      if (!edges.at(tile, half)) continue;
      if (!edges.alike) whole.fold(part, half);
      edges.next(half);
    }
  }

  // The scores of a tile are computed before the values of the one before it are added, and weighed meanwhile. Something is
  // looked up while the last products run.
  template <typename Look>
  __device__ __forceinline__ void run(Part& part, KvRing& ring, const Look& look_up) const {
    Part whole;
    run(part, whole, ring, look_up);
    whole.fold(part);
    part = whole;
  }

  // The last split is not ended.
  template <typename Look>
  __device__ __forceinline__ void run(Part& part, Part& whole, KvRing& ring, const Look& look_up) const {
    float scores[TOKENS / 2], higher[HALVES], fade[HALVES];
    unsigned weights[TOKENS / 16][4];
    clear(weights);
    part.clear(), whole.clear();
    ask(scores, ring, begin);
    end_products();
    end_turn(group);
    await_products<0>();
    hold(scores);
    Edges edges(item, begin, size, row);
    weigh(scores, part, begin, edges, higher, fade);
    take(part, weights, scores, higher, fade);
#pragma unroll 1
    for (int tile = begin + 1; tile < end_tile; ++tile) {
      const unsigned values = ring.values(), empty = ring.empty_at();
      ring.next();
      ask(scores, ring, tile);
      end_products();
      ask_values(part.sum, weights, own(values));
      end_products();
      end_turn(group);
      if (TAKE_TURNS) add_mass(part.mass, weights);
      await_products<1>();
      hold(scores);
      weigh(scores, part, tile, edges, higher, fade);
      end_weighing(ring);
      await_products<0>();
      hold(part.sum);
      if (refilled(tile - 1)) free_stage(empty, lane);
      end_splits(part, whole, edges, tile);
      take(part, weights, scores, higher, fade);
    }
    ask_values(part.sum, weights, own(ring.values()));
    end_products();
    if (TAKE_TURNS) add_mass(part.mass, weights);
    look_up();
    await_products<0>();
    hold(part.sum);
    if (refilled(end_tile - 1)) free_stage(ring.empty_at(), lane);
    ring.next();
  }

  __device__ __forceinline__ void end(const Part& part) const {
    if (ALONE)
      ends.mean(part, item, size, row, lane);
    else
      ends.leave(part, item, end_tile - 1, size, row, lane);
  }
};
