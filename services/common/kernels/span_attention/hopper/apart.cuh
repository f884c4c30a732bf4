// An item's tiles by two warpgroups: one scores and weighs, the other one adds the values. Warps that widen codes slow both down,
// and a warpgroup that did all of it would wait for each of its own steps.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/products.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"
#include "span_attention/hopper/walk.cuh"

constexpr int HANDED_WEIGHTS = GROUP_ROWS * PANEL_BYTES, HANDED_TOLD = GROUP_ROWS * 8;  // bytes of a tile

// Weights on their way, with what is highest in a row and how much what was summed before fades. A warp has the same rows in both
// warpgroups.
struct Handover {
  unsigned weights, told, full, empty;
  int slot = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void leave(const unsigned (&blocks)[TOKENS / 16][4], const float (&higher)[HALVES],
                                        const float (&fade)[HALVES]) {
    const int lane = threadIdx.x % 32;
    await_phase(empty + slot * 8, parity ^ 1);
#pragma unroll
    for (int part = 0; part < TOKENS / 16; ++part) store_blocks(place(part), blocks[part]);
#pragma unroll
    for (int half = 0; half < HALVES; ++half)
      if (lane % 4 == 0) store_pair(told_place(half), higher[half], fade[half]);
    __syncwarp();
    if (lane == 0) arrive(full + slot * 8);
    next();
  }

  __device__ __forceinline__ void take(unsigned (&blocks)[TOKENS / 16][4], float (&higher)[HALVES],
                                       float (&fade)[HALVES]) const {
    await_phase(full + slot * 8, parity);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const float2 both = load_pair(told_place(half));
      higher[half] = both.x, fade[half] = both.y;
    }
#pragma unroll
    for (int part = 0; part < TOKENS / 16; ++part) load_blocks(blocks[part], place(part));
  }

  // When products have read what was loaded.
  __device__ __forceinline__ void give_back() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty + slot * 8);
    next();
  }

 private:
  __device__ __forceinline__ void next() {
    if (++slot == HANDED) slot = 0, parity ^= 1;
  }
  static __device__ __forceinline__ int first_line() { return threadIdx.x % THREADS / 32 * 16; }
  __device__ __forceinline__ unsigned place(int part) const {
    const int lane = threadIdx.x % 32, line = first_line() + lane % 16;
    return weights + slot * HANDED_WEIGHTS + line * PANEL_BYTES + ((part * 2 + lane / 16 ^ line % 8) << 4);
  }
  __device__ __forceinline__ unsigned told_place(int half) const {
    return told + slot * HANDED_TOLD + (first_line() + half * 8 + threadIdx.x % 32 / 4) * 8;
  }
};

// The logarithms of a tile's weights, by the highest score so far. Scores have no more use then.
__device__ __forceinline__ void find_logs(float (&logs)[TOKENS / 2], float (&scores)[TOKENS / 2], const Walk& walk, int tile,
                                          const Edges& edges, const float (&best)[HALVES], float (&higher)[HALVES],
                                          float (&fade)[HALVES]) {
  walk.hide_last(scores, tile);
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    const float before = edges.at(tile, half) ? NOTHING : best[half];
    higher[half] = fmaxf(before, highest(scores, half, walk.scale));
    fade[half] = fade_of(__fsub_rn(before, higher[half]));
    const float offset = __fsub_rn(0.f, higher[half]);
#pragma unroll
    for (int eight = 0; eight < TOKENS / 8; ++eight) {
      const int number = eight * 4 + half * 2;
      logs[number] = __fmaf_rn(scores[number], walk.scale, offset);
      logs[number + 1] = __fmaf_rn(scores[number + 1], walk.scale, offset);
    }
  }
}

// Weighs the tiles of a walk. The scores of a tile are computed while those of the tile before it are weighed: products wait for
// weights to be left.
__device__ __forceinline__ void score_tiles(const Walk& walk, KvRing& ring, Handover& to) {
  float scores[TOKENS / 2], logs[TOKENS / 2] = {}, best[HALVES], higher[HALVES], fade[HALVES];
  unsigned weights[TOKENS / 16][4];
  clear(weights);
#pragma unroll
  for (int half = 0; half < HALVES; ++half) best[half] = NOTHING;
  Edges edges(walk.item, walk.begin, walk.size, walk.row);
  const auto ask = [&] {
    await_phase(ring.full_at(), ring.parity);
    ask_scores(scores, walk.queries, ring.keys());
    end_products();
  };
  const auto await = [&] {
    await_products<0>();
    hold(scores);
    free_stage(ring.empty_at(), walk.lane);
    ring.next();
  };
  ask(), await();
#pragma unroll 1
  for (int tile = walk.begin; tile < walk.end_tile; ++tile) {
    find_logs(logs, scores, walk, tile, edges, best, higher, fade);
    hold(logs);
    ask();  // behind the last tile scores are of no use
#pragma unroll
    for (int number = 0; number < TOKENS / 2; ++number)
      if (number % 4 / 2 < HALVES) logs[number] = exp2_approx_ftz(logs[number]);
    pack(weights, logs);
    to.leave(weights, higher, fade);
    await();
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      if (edges.at(tile, half)) edges.next(half);
      best[half] = higher[half];
    }
  }
  await_phase(ring.full_at(), ring.parity);
  free_stage(ring.empty_at(), walk.lane);
  ring.next();
}

// Adds the values of a walk's tiles.
__device__ __forceinline__ void add_tiles(const Walk& walk, KvRing& ring, Handover& from, Part& part) {
  Part whole;
  float higher[HALVES], fade[HALVES];
  unsigned weights[TOKENS / 16][4];
  part.clear(), whole.clear();
  Edges edges(walk.item, walk.begin, walk.size, walk.row);
#pragma unroll 1
  for (int stage = 0; stage < SKEW; ++stage) {
    await_phase(ring.full_at(), ring.parity);
    free_stage(ring.empty_at(), walk.lane);
    ring.next();
  }
#pragma unroll 1
  for (int tile = walk.begin; tile < walk.end_tile; ++tile) {
    walk.await_skewed(ring, tile + SKEW);
    from.take(weights, higher, fade);
    walk.end_splits(part, whole, edges, tile);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      // In a long context the highest score has mostly been seen.
      if (__any_sync(~0u, fade[half] != 1.f)) part.fade(half, fade[half]);
      part.best[half] = higher[half];
    }
    ask_values(part.sum, weights, walk.own(ring.values()));
    end_products();
    add_mass(part.mass, weights);
    await_products<0>();
    hold(part.sum);
    from.give_back();
    free_stage(ring.empty_at(), walk.lane);
    ring.next();
  }
  whole.fold(part);
  part = whole;
}
