// What codes of values are multiplied by, tile by tile: a warp finds it for all that add.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "span_attention/hopper/handed.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/left_codes.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

// Of a tile: factors, what is taken, rests, and whether there are any.
constexpr int RESTS_AT = 3 * TOKENS * 2, POWERS_BYTES = RESTS_AT + 16;

struct FoundPowers {
  unsigned powers, found;  // of the first stage

  __device__ __forceinline__ unsigned at(int stage) const { return powers + stage * POWERS_BYTES; }
  __device__ __forceinline__ unsigned found_at(int stage) const { return found + stage * 8; }

  // A lane has two values side by side. Those of one lane of an adder lie in a row.
  __device__ __forceinline__ void find(int stage, unsigned exponents, int seen, int lane) const {
    int own[2];
#pragma unroll
    for (int each = 0; each < 2; ++each) {
      const int exponent = load_exponent(exponents + (lane * 2 + each) * KV_HEADS);
      own[each] = lane * 2 + each < seen ? exponent : WHOLE;  // what no row sees must be a number
    }
    const Powers powers(own[0], own[1]);
    const unsigned to = at(stage) + (lane % 4 * 8 + lane / 8 * 2 + lane / 4 % 2) * 4;
    store_shared(to, __uint_as_float(powers.factors));
    store_shared(to + TOKENS * 2, __uint_as_float(powers.middles));
    store_shared(to + TOKENS * 4, __uint_as_float(powers.rest));
    const bool rests = __any_sync(~0u, max(own[0], own[1]) > WHOLE);
    if (lane == 0) store_shared(at(stage) + RESTS_AT, rests ? 1.f : 0.f);
  }
};

// All items' tiles.
__device__ __forceinline__ void find_powers(const Items& items, LoadRing ring, const FoundPowers& to, unsigned exponents,
                                            int lane) {
  for (int round = 0; items.index(round) < items.count(); ++round) {
    const Item item = items.item(items.lead(items.index(round)));
    walk_sizes(items, item, [&](const SplitSteps& steps) {
      for (int tile = steps.begin; tile < steps.end; ++tile, ring.next()) {
        await_phase(ring.full_at(), ring.parity);
        to.find(ring.stage, exponents + (ring.stage * 2 + 1) * EXPONENT_TILE + item.head, item.span.seen() - tile * TOKENS,
                lane);
        __syncwarp();
        if (lane == 0) arrive(to.found_at(ring.stage));
      }
    });
  }
}
