// Codes of keys and values, and what they mean: `kv_codes`. Warps of their own read tiles of codes from one ring, and leave their
// numbers in the ring from which others multiply, which know nothing of codes.
//
// A number is a whole one, which bfloat16 holds, times a power of two, so no step rounds.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int WIDENING_WARPS = 4,
              KIND_WARPS = WIDENING_WARPS / 2;                    // half of them have keys, the others values
constexpr unsigned POWERS_APART = 0x00800080, NANS = 0x7FC07FC0;  // in bfloat16, of both halves

// Two whole numbers of -128 to 127 in the low bytes of both halves, below bytes of 0x43, times factors. These bytes make 128 of
// seven bits more, and 128, or 256 where the eighth is set, of that bit.
__device__ __forceinline__ unsigned scaled_pair(unsigned pair, unsigned factors) {
  asm("{\n.reg .b32 seven, eighth;\n"
      "and.b32 seven, %0, 0xFF7FFF7F;\n"
      "and.b32 eighth, %0, 0xFF80FF80;\n"
      "sub.rn.bf16x2 %0, seven, eighth;\n"
      "mul.rn.bf16x2 %0, %0, %1;\n}"
      : "+r"(pair)
      : "r"(factors));
  return pair;
}

// Eight codes as the numbers that they mean.
__device__ __forceinline__ uint4 widened(unsigned low, unsigned high, unsigned above, unsigned factors) {
  return make_uint4(
      scaled_pair(__byte_perm(low, above, 0x4140), factors), scaled_pair(__byte_perm(low, above, 0x4342), factors),
      scaled_pair(__byte_perm(high, above, 0x4140), factors), scaled_pair(__byte_perm(high, above, 0x4342), factors));
}

// Two to the power of an exponent, twice.
__device__ __forceinline__ unsigned factors_of(int exponent) {
  return exponent == NO_NUMBER ? NANS : unsigned(exponent + 127) * POWERS_APART;
}

// Where a lane's codes lie in a stage, and their numbers in a stage of the other ring. Lanes take sixteen codes at once. Eight
// lanes that memory serves together have half of the codes of two lines. These are so far apart that their codes lie in different
// banks, and their numbers too.
struct Widener {
  static constexpr int LINES = TOKENS / KIND_WARPS, EIGHTS = LINES / 8;  // of a warp
  int kind;                                                              // keys or values
  unsigned codes, numbers, exponents, above;

  // A constant that the assembler knew would have it load all selectors of bytes instead.
  __device__ __forceinline__ Widener(int warp, int lane, int width) : above(__shfl_sync(~0u, 0x43434343 ^ width >> 31, 0)) {
    kind = warp / KIND_WARPS;
    const int pair = lane / 8 * 2, in_eight = lane & 4 ? pair ^ 5 : pair, unit = lane % 4;
    const int line = warp % KIND_WARPS * LINES + in_eight;
    codes = kind * CODE_TILE + line * SIZE + ((unit ^ in_eight) << 4);
    numbers = kind * TILE_BYTES + line * PANEL_BYTES + ((2 * unit ^ in_eight) << 4);
    exponents = kind * EXPONENT_TILE + line * KV_HEADS;
  }

  // Values that are multiplied by weights of nothing must be numbers.
  __device__ __forceinline__ void clear(unsigned to) const {
#pragma unroll
    for (int eight = 0; eight < EIGHTS * PANELS; ++eight) {
      const unsigned at = to + eight % PANELS * HALF_TILE + eight / PANELS * 8 * PANEL_BYTES;
      store_shared(at + numbers, make_uint4(0, 0, 0, 0));
      store_shared(at + (numbers ^ 16), make_uint4(0, 0, 0, 0));
    }
  }

  __device__ __forceinline__ void widen(unsigned from, unsigned from_exponents, unsigned to) const {
    unsigned loaded[EIGHTS][PANELS][4];
    int found[EIGHTS];
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
#pragma unroll
      for (int panel = 0; panel < PANELS; ++panel)
        load_words(loaded[eight][panel], from + eight * 8 * SIZE + (codes ^ panel << 6));
      found[eight] = load_exponent(from_exponents + exponents + eight * 8 * KV_HEADS);
    }
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      const unsigned factors = factors_of(found[eight]);
#pragma unroll
      for (int panel = 0; panel < PANELS; ++panel) {
        const unsigned (&sixteen)[4] = loaded[eight][panel];
        const unsigned at = to + panel * HALF_TILE + eight * 8 * PANEL_BYTES;
        store_shared(at + numbers, widened(sixteen[0], sixteen[1], above, factors));
        store_shared(at + (numbers ^ 16), widened(sixteen[2], sixteen[3], above, factors));
      }
    }
  }
};

// A warp's share of all tiles. Codes are given back when their numbers are stored, for loads that still wait for shared memory
// would find what the copy engine brings next.
__device__ __forceinline__ void widen_items(const Items& items, LoadRing from, KvRing to, unsigned exponents, int warp,
                                            int lane) {
  const Widener widener(warp % WIDENING_WARPS, lane, items.width);
  int count = 0;
  for (int round = 0; items.index(round) < items.count(); ++round) {
    const Item item = items.item(items.lead(items.index(round)));
    const int most = item.most(), least = TOGETHER ? most : item.least();
    for (int size = least; size <= most; size += max(most - least, 1)) {
      const SplitTiles tiles(item.span, item.program, items.programs, size);
      const int skew = widener.kind * SKEW, behind = tiles.end + (tiles.begin < tiles.end ? SKEW : 0);
      for (int turn = tiles.begin; turn < behind; ++turn, from.next(), to.next()) {
        if (count++ % WIDENERS != warp / WIDENING_WARPS) continue;
        await_phase(from.full_at(), from.parity);
        await_phase(to.empty_at(), to.parity ^ 1);
        if (turn - skew >= tiles.begin && turn - skew < tiles.end)
          widener.widen(from.keys(), exponents + from.stage * 2 * EXPONENT_TILE + item.head, to.keys());
        else if (skew > 0)
          widener.clear(to.keys());
        publish();
        __syncwarp();
        if (lane == 0) arrive(to.full_at()), arrive(from.empty_at());
      }
    }
  }
}
