// Two warpgroups that add values, by half of the columns each. Columns are the lines of their products and rows of queries the
// columns. Of two columns that lie side by side a lane has the first in its upper line and the second in its lower one.

#pragma once

#include "build.cuh"
#include "approximate.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "pdl.cuh"
#include "warp.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/handed.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/found_powers.cuh"
#include "span_attention/hopper/left_codes.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int WHOLE_BYTES = VALUE_GROUPS * THREADS * SUMS * 4;  // sums of all splits so far

// Values of a tile: of sixteen at a time, by a thread's lines.
using Left = unsigned[TOKENS / 16][4];

// Sums of products stay where they are: a compiler that had two places for them would move all of them.
__device__ __forceinline__ void scale_in_place(float& sum, float by) {
  asm volatile("mul.rn.f32 %0, %0, %1;" : "+f"(sum) : "f"(by));
}

struct Adder {
  const ItemEnds& ends;
  unsigned wholes, masses;  // of all threads, and what is counted
  int own, warp, lane;
  unsigned middles;

  __device__ __forceinline__ void widen(Left& left, unsigned values, unsigned powers) const {
    const unsigned from = values + piece_at(lane, own * 4 + warp);
    unsigned words[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) load_turned(words[half], from + half * 32 * SIZE);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned factors[4], taken[4];
      load_words(factors, powers + lane % 4 * 32 + half * 16);
      load_words(taken, powers + TOKENS * 2 + lane % 4 * 32 + half * 16);
#pragma unroll
      for (int each = 0; each < 4; ++each) {
        unsigned (&part)[4] = left[half * 2 + each / 2];
        part[each % 2 * 2] = scaled(even_of(words[half][each], middles), factors[each], taken[each]);
        part[each % 2 * 2 + 1] = scaled(odd_of(words[half][each], middles), factors[each], taken[each]);
      }
    }
    if (load_shared(powers + RESTS_AT) == 0.f) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned rests[4];
      load_words(rests, powers + TOKENS * 4 + lane % 4 * 32 + half * 16);
#pragma unroll
      for (int each = 0; each < 8; ++each) {
        unsigned& pair = left[half * 2 + each / 4][each % 4];
        pair = multiplied(pair, rests[each / 2]);
      }
    }
  }

  // Fades the rows of two eights, if any of them does.
  __device__ __forceinline__ void fade(float (&part)[SUMS], const Slots& from) const {
    const unsigned fades = __float_as_uint(load_shared(from.flags_at()));
#pragma unroll
    for (int pair = 0; pair < (EIGHTS + 1) / 2; ++pair) {
      if (!(fades >> pair * 8 & 0xFF)) continue;
#pragma unroll
      for (int eight = pair * 2; eight < pair * 2 + 2 && eight < EIGHTS; ++eight) {
        const float2 by = load_pair(from.fades_at() + (eight * 8 + lane % 4 * 2) * 4);
        float* const four = part + eight * 4;
        scale_in_place(four[0], by.x), scale_in_place(four[1], by.y);
        scale_in_place(four[2], by.x), scale_in_place(four[3], by.y);
      }
    }
  }

  // Where the first of a thread's sums of the whole lies: registers hold those of one split.
  __device__ __forceinline__ unsigned whole_at() const { return wholes + threadIdx.x % (VALUE_GROUPS * THREADS) * 4; }

  // Adds a part to the whole before it, if there is one.
  __device__ __forceinline__ void fold(const float (&part)[SUMS], const Slots& from, bool there) const {
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      const unsigned row = (eight * 8 + lane % 4 * 2) * 4;
      const float2 before = load_pair(from.before_at() + row), after = load_pair(from.after_at() + row);
#pragma unroll
      for (int each = 0; each < 4; ++each) {
        const unsigned at = whole_at() + (eight * 4 + each) * VALUE_GROUPS * THREADS * 4;
        const float whole = there ? __fmul_rn(load_shared(at), each % 2 ? before.y : before.x) : 0.f;
        store_shared(at, __fmaf_rn(part[eight * 4 + each], each % 2 ? after.y : after.x, whole));
      }
    }
  }

  __device__ __forceinline__ void load_whole(float (&whole)[SUMS]) const {
#pragma unroll
    for (int number = 0; number < SUMS; ++number) whole[number] = load_shared(whole_at() + number * VALUE_GROUPS * THREADS * 4);
  }

  __device__ __forceinline__ int column() const { return own * 64 + warp * 16 + lane / 4 * 2; }

  // Leaves a part, of the rows whose splits have its size.
  __device__ __forceinline__ void leave(const float (&part)[SUMS], const SplitSteps& steps, int last_tile) const {
    const PartPlace to(ends, steps, last_tile);
    const int own_row = kept(steps.item.span.first_row + lane % 4 * 2);
#pragma unroll
    for (int each = 0; each < EIGHTS * 2; ++each) {
      const int row = own_row + each / 2 * 8 + each % 2, number = each / 2 * 4 + each % 2;
      if (steps.has(row)) store_kept(ends.partial + (to.first + row) * SIZE + column(), part[number], part[number + 2]);
    }
  }

  // Stores means, of which a lane has two columns side by side.
  __device__ __forceinline__ void mean(const float (&whole)[SUMS], const SplitSteps& steps) const {
    const Item& item = steps.item;
    sync_threads(2 + KEY_GROUPS, COUNTED_THREADS);
    const int first = kept(lane % 4 * 2);
#pragma unroll
    for (int each = 0; each < EIGHTS * 2; ++each) {
      const int line = each / 2 * 8 + first + each % 2, row = item.span.first_row + line, number = each / 2 * 4 + each % 2;
      const float mass = load_shared(masses + line * 4), by = mass > 0.f ? mass : 1.f;
      if (steps.has(row))
        *reinterpret_cast<unsigned*>(ends.out + ends.line(item, row) * SIZE + column()) =
            pair_of(div_full(whole[number], by), div_full(whole[number + 2], by));
    }
    sync_threads(2 + KEY_GROUPS, COUNTED_THREADS);
  }

  // Brings a tile's values into registers.
  __device__ __forceinline__ void bring(Left& left, LoadRing& ring, const FoundPowers& powers) const {
    await_phase(ring.full_at(), ring.parity);
    await_phase(powers.found_at(ring.stage), ring.parity);
    widen(left, ring.keys() + CODE_TILE, powers.at(ring.stage));
    __syncwarp();
    if (lane == 0) arrive(ring.empty_at());
    ring.next();
  }

  // Asks for a tile's products.
  __device__ __forceinline__ void ask(float (&part)[SUMS], const Left& left, const Slots& from, bool first) const {
    if (!first) fade(part, from);
    hold(part);
    hold(left);
    begin_products();
#pragma unroll
    for (int step = 0; step < TOKENS / 16; ++step)
      multiply_lines(part, left[step], descriptor(from.weights_at()) + 2 * step, step > 0 || !first);
    end_products();
  }
};

// The tiles of one size's splits. Registers hold the values of two tiles in turn: the next ones are widened beside a tile's products,
// and its weights are awaited before these end.
struct Adding {
  const Adder& adder;
  const SplitSteps& steps;
  const FoundPowers& powers;
  LoadRing& ring;
  Slots& from;
  float part[SUMS];

  __device__ __forceinline__ void take(const Left& left, Left& next, int tile, bool first, bool last) {
    Slots behind = from;
    behind.next();
    adder.ask(part, left, from, first);
    if (tile + 1 < steps.end) {
      adder.bring(next, ring, powers);
      await_phase(behind.full_at(), behind.parity);
    }
    await_products<0>();
    hold(part);
    if (!last) leave_slot();
  }
  __device__ __forceinline__ void leave_slot() {
    __syncwarp();
    if (adder.lane == 0) arrive(from.empty_at());
    from.next();
  }

  __device__ __forceinline__ void add(bool adds_up) {
    Left left, next;
    adder.bring(left, ring, powers);
    await_phase(from.full_at(), from.parity);
    for (int tile = steps.begin; tile < steps.end;) {
      const int first = tile, edge = min(tile + steps.size, steps.end);
#pragma unroll 1
      while (true) {
        take(left, next, tile, tile == first, tile + 1 == edge);
        if (++tile == edge) break;
        take(next, left, tile, false, tile + 1 == edge);
        if (++tile == edge) break;
      }
      if (adds_up)
        adder.fold(part, from, first > steps.begin);
      else
        adder.leave(part, steps, edge - 1);
      leave_slot();
      if ((edge - first) % 2) copy(left, next);
    }
  }
  // Not where the loop ends: there the assembler would copy at every turn.
  static __device__ __forceinline__ void copy(Left& to, const Left& from) {
#pragma unroll
    for (int each = 0; each < TOKENS / 4; ++each)
      asm volatile("mov.b32 %0, %1;" : "=r"(to[each / 4][each % 4]) : "r"(from[each / 4][each % 4]));
  }
};

// All items' tiles.
__device__ __forceinline__ void add_items(const Items& items, const Adder& adder, LoadRing ring, Slots from,
                                          const FoundPowers& powers) {
  await_previous();
  for (int round = 0; items.index(round) < items.count(); ++round) {
    const Item item = items.item(items.lead(items.index(round)));
    const bool adds_up = ALONE || item.program == 0;
    walk_sizes(items, item, [&](const SplitSteps& steps) {
      Adding adding{adder, steps, powers, ring, from};
      adding.add(adds_up);
      if (!adds_up) return;
      adder.load_whole(adding.part);
      if (ALONE)
        adder.mean(adding.part, steps);
      else
        adder.leave(adding.part, steps, steps.end - 1);
    });
  }
  allow_next();
}
