// Which tiles a team takes, as `splits.py` says, and how one goes from memory into the registers of matrix instructions: no
// shared memory holds it, so that the CTA has room beside one of the product before.

#pragma once

#include "build.cuh"
#include "warp.cuh"
#include "span_attention/alone/instructions.cuh"
#include "span_attention/alone/queries.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/alone/sizes.cuh"
#include "span_attention/alone/heads.cuh"
#include "span_attention/hopper/splits.cuh"
#include "span_attention/hopper/turn.cuh"

struct SplitSpan {
  int first, last, size, begin, end;  // the positions that are seen, tiles of a split, and the team's

  // With a window splits are counted from the one in which it begins, and its positions say how long they are.
  __device__ __forceinline__ SplitSpan(int length, int total, int split) {
    last = min(length, total - 1);
    first = WINDOW > 0 ? min(max(length + 1 - WINDOW, 0), max(last, 0)) : 0;
    size = tiles_of_split(WINDOW > 0 ? min(last, WINDOW - 1) : last);
    begin = (first / TOKENS / size + split) * size, end = min(begin + size, last / TOKENS + 1);
    begin = max(begin, first / TOKENS);
  }
  __device__ __forceinline__ int splits() const { return last / TOKENS / size - first / TOKENS / size + 1; }
};

// Where keys and values of a head lie.
struct Paged {
  const unsigned short *keys, *values;
  const int* table;
  int kv_heads, begin, end;  // positions before `begin` and from `end` on are not there
  bool single;               // the split has one tile: then what has no block counts as zero

  // Of an eighth of a tile for each lane.
  __device__ __forceinline__ int block_of(int tile, int lane) const {
    const int first = tile * TOKENS + lane % EIGHTS * 8;
    return first < end ? __ldcg(table + first / BLOCK) : 0;
  }
  __device__ __forceinline__ size_t place(int block, int position) const {
    return (size_t)(block * BLOCK + position % BLOCK) * (kv_heads * SIZE);
  }
  __device__ __forceinline__ bool has(int block, int position) const {
    return (WINDOW == 0 || position >= begin) && position < end && (block != 0 || !single);
  }
};

// A warp's 16 keys of a tile: a lane loads eights of two of them. Matrix instructions take of every 16 numbers two pairs a lane.
struct Keys {
  unsigned pairs[2][STEPS / 2][4];

  __device__ __forceinline__ void load(const Paged& from, int tile, int blocks, int warp, int lane) {
#pragma unroll
    for (int each = 0; each < 2; ++each) {
      const int first = warp * 2 + each, block = __shfl_sync(~0u, blocks, first),
                position = tile * TOKENS + first * 8 + lane / 4;
      const unsigned short* line = from.keys + from.place(block, position) + lane % 4 * 8;
      const bool there = from.has(block, position);
#pragma unroll
      for (int four = 0; four < STEPS / 2; ++four) load_once(pairs[each][four], line + four * 32, there);
    }
  }
  __device__ __forceinline__ void arrange(int lane) {
#pragma unroll
    for (int each = 0; each < STEPS; ++each) turn(pairs[each % 2][each / 2], lane);
  }
  // Puts in one of the round's own. All choices are of registers: an array written in branches would lie in memory.
  __device__ __forceinline__ void put(const unsigned short* key, int place, int warp, int lane) {
    const bool has = place / OWN_TOKENS == warp && place % 8 == lane / 4;
#pragma unroll
    for (int part = 0; part < STEPS * 2; ++part) {
      const unsigned pair = pair_at(key + part * 8 + lane % 4 * 2);
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        unsigned& own = pairs[each][part / 4][part % 4];
        own = has && place / 8 % 2 == each ? pair : own;
      }
    }
  }
};

// A warp's 32 columns of the values of a tile: a lane loads eight of them, of eight positions. Then it has columns of pairs
// of positions: which ones nobody asks, as long as the sums of a lane are of eight neighbours.
struct Values {
  unsigned pairs[EIGHTS][4];

  __device__ __forceinline__ void load(const Paged& from, int tile, int blocks, int warp, int lane) {
#pragma unroll
    for (int each = 0; each < EIGHTS; ++each) {
      const int block = __shfl_sync(~0u, blocks, each), position = tile * TOKENS + each * 8 + lane / 4;
      const unsigned short* line = from.values + from.place(block, position) + warp * OWN_COLUMNS + lane % 4 * 8;
      load_once(pairs[each], line, from.has(block, position));
    }
  }
  __device__ __forceinline__ void arrange() {
#pragma unroll
    for (int each = 0; each < EIGHTS * 4; ++each) pairs[each / 4][each % 4] = turned(pairs[each / 4][each % 4]);
  }
  __device__ __forceinline__ void put(const unsigned short* value, int place, int warp, int lane) {
    const bool has = place % 8 / 2 == lane % 4;
    const int shift = place % 2 * 16, first = warp * OWN_COLUMNS + lane / 8 * 8 + lane / 4 % 2;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const unsigned number = (unsigned)value[first + pair * 2] << shift, others = 0xFFFF0000u >> shift;
#pragma unroll
      for (int each = 0; each < EIGHTS; ++each)
        pairs[each][pair] = has && place / 8 == each ? (pairs[each][pair] & others) | number : pairs[each][pair];
    }
  }
};
