// A warp that adds the mass of each row: its weights, by products with ones whose lines are rows.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "warp.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/handed.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int LINES = COUNTED_ROWS < 16 ? 8 : 16,
              BLOCKS = COUNTED_ROWS / LINES;  // of a product, of which eights may be the same
constexpr int COUNTER_BYTES = 2 * BEST_BYTES;

struct Counter {
  const ItemEnds& ends;
  unsigned masses, bests;  // of all splits so far
  int lane;

  // Calls with the number of each of a lane's masses, and its line.
  template <typename Take>
  static __device__ __forceinline__ void each(int lane, const Take& take) {
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) take(eight, eight * 8 + lane / 4);
  }

  __device__ __forceinline__ void add(float (&mass)[EIGHTS], const Slots& from, bool first) const {
    if (first)
      each(lane, [&](int number, int) { mass[number] = 0.f; });
    else if (load_shared(from.flags_at()) != 0.f)
      each(lane,
           [&](int number, int line) { mass[number] = __fmul_rn(mass[number], load_shared(from.fades_at() + line * 4)); });
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
      constexpr int BEHIND = LINES / 16;  // the second eight of a block, if it has one
      const int line = block * LINES + lane / 8 % 2 * 8 % LINES + lane % 8;
      float &upper = mass[block * LINES / 8], &lower = mass[block * LINES / 8 + BEHIND];
      float sums[4] = {upper, upper, lower, lower};
#pragma unroll
      for (int part = 0; part < TOKENS / 16; ++part) {
        unsigned weights[4];
        load_blocks(weights, from.weights_at() + line * PANEL_BYTES + ((part * 2 + lane / 16 ^ lane % 8) << 4));
        multiply_ones(sums, weights);
      }
      upper = sums[0], lower = sums[2];
    }
  }

  __device__ __forceinline__ void fold(const float (&mass)[EIGHTS], const Slots& from, bool there) const {
    each(lane, [&](int number, int line) {
      const float best = load_shared(from.best_at() + line * 4), after = load_shared(from.after_at() + line * 4);
      const float top = there ? fmaxf(best, load_shared(bests + line * 4)) : best;
      const float before = there ? __fmul_rn(load_shared(masses + line * 4), load_shared(from.before_at() + line * 4)) : 0.f;
      __syncwarp();
      store_shared(masses + line * 4, __fmaf_rn(mass[number], after, before));
      store_shared(bests + line * 4, top);
    });
    __syncwarp();
  }

  // Leaves a part, of the rows whose splits have its size.
  template <typename Of>
  __device__ __forceinline__ void leave(const SplitSteps& steps, int last_tile, unsigned best, const Of& mass_of) const {
    const PartPlace to(ends, steps, last_tile);
    if (lane % 4) return;
    each(lane, [&](int number, int line) {
      const int row = steps.item.span.first_row + line;
      if (steps.has(row))
        *reinterpret_cast<float2*>(ends.sums + (to.first + row) * 2) =
            make_float2(load_shared(best + line * 4), mass_of(number, line));
    });
  }
};

// All items' tiles.
__device__ __forceinline__ void count_items(const Items& items, const Counter& counter, Slots from) {
  await_previous();
  for (int round = 0; items.index(round) < items.count(); ++round) {
    const Item item = items.item(items.lead(items.index(round)));
    const bool adds_up = ALONE || item.program == 0;
    walk_sizes(items, item, [&](const SplitSteps& steps) {
      float mass[EIGHTS];
      bool there = false;
      steps.each([&](int tile, bool first, bool last) {
        await_phase(from.full_at(), from.parity);
        counter.add(mass, from, first);
        if (last && adds_up) {
          counter.fold(mass, from, there);
          there = true;
        } else if (last) {
          counter.leave(steps, tile, from.best_at(), [&](int number, int) { return mass[number]; });
        }
        __syncwarp();
        if (counter.lane == 0) arrive(from.empty_at());
        from.next();
      });
      if (!adds_up) return;
      if (ALONE) {
        sync_threads(2 + KEY_GROUPS, COUNTED_THREADS);  // masses may be read
        sync_threads(2 + KEY_GROUPS, COUNTED_THREADS);  // and have been
      } else {
        counter.leave(steps, steps.end - 1, counter.bests,
                      [&](int, int line) { return load_shared(counter.masses + line * 4); });
      }
    });
  }
}
