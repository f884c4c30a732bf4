// Nodes of a tree, each of which has the bits of its path as a chain.
//
// Keys and values of nodes lie in the places of their rows, from the sequence's length on. In a chain the ancestor of a depth
// lies in the place of that depth, and sums are in the order of places. A score is of one key, so scores are computed by row and
// then change places. Of values sixteen are added at once: a warp takes those of a node's path for this node's rows alone. The
// weights of its other rows are zero meanwhile, which adds nothing.

#pragma once

#include "build.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int MOST_NODES = GROUP_ROWS / GROUP, SCORE_LINE = MOST_NODES | 1;  // lines of an odd length lie in different banks

struct Paths {
  float* scores;           // of a row, by nodes' rows
  unsigned char* lineage;  // by nodes' rows, of their ancestors by depth
  unsigned char* depths;
  int last_place;  // that the sequence has a block for

  __device__ __forceinline__ Paths(unsigned char* memory)
      : scores(reinterpret_cast<float*>(memory)),
        lineage(memory + GROUP_ROWS * SCORE_LINE * sizeof(float)),
        depths(lineage + MOST_NODES * MOST_NODES) {}

  // Some threads store what all read later. What stands behind a node in its lineage says nothing.
  __device__ __forceinline__ void store(const Span& span, const int* from) const {
    for (int at = threadIdx.x % THREADS; at < span.width * span.width; at += THREADS) lineage[at] = from[at];
    for (int node = threadIdx.x % THREADS; node < span.width; node += THREADS)
      depths[node] = max(min((int)span.positions[node], span.total - 1) - span.length, 0);
  }

  // Rows behind the last block of a sequence lie in a block of padding, which may hold anything.
  __device__ __forceinline__ void find_last(const Span& span, const int* table) {
    last_place = span.total - 1;
    for (int block = last_place / BLOCK; block > span.length / BLOCK; --block)
      if (table[block] == 0) last_place = block * BLOCK - 1;
  }

  static __device__ __forceinline__ bool in(const Span& span, int tile) { return tile * TOKENS + TOKENS > span.length; }

  // Lets a warp's lanes read the scores of its rows, as far as their keys are those of nodes.
  __device__ __forceinline__ void show(const float (&from)[TOKENS / 2], const Span& span, int tile, int row, int lane) const {
#pragma unroll
    for (int number = 0; number < TOKENS / 2; ++number) {
      if (number % 4 / 2 >= HALVES) continue;
      const int node = tile * TOKENS + number / 4 * 8 + lane % 4 * 2 + number % 2 - span.length;
      if (node >= 0 && node < span.width) scores[(row + number % 4 / 2 * HALF_ROWS) * SCORE_LINE + node] = from[number];
    }
  }

  // Puts those of a node's path where a chain has them, and hides what follows it.
  __device__ __forceinline__ void order(float (&to)[TOKENS / 2], const Span& span, int tile, int row, int lane) const {
    __syncwarp();
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int own = row + half * HALF_ROWS, node = min(own / GROUP, span.width - 1), deepest = depths[node];
#pragma unroll
      for (int each = 0; each < TOKENS / 4; ++each) {
        const int number = each / 2 * 4 + half * 2 + each % 2;
        const int depth = tile * TOKENS + each / 2 * 8 + lane % 4 * 2 + each % 2 - span.length;
        if (depth < 0) continue;
        to[number] = depth <= deepest ? scores[own * SCORE_LINE + lineage[node * span.width + depth]] : -INFINITY_F;
      }
    }
    __syncwarp();
  }

  // Adds a tile's weighted values; those of the next tile may be on a path, too.
  template <int COUNT>
  __device__ __forceinline__ void add(float (&sums)[COUNT], const unsigned (&weights)[TOKENS / 16][4], const Span& span,
                                      int tile, unsigned values, unsigned next_values, int lane) const {
#pragma unroll
    for (int part = 0; part < TOKENS / 16; ++part) {
      const int first = tile * TOKENS + part * 16, position = first + lane % 16, depth = position - span.length;
      if (first + 16 <= span.length) {
        add_part(sums, weights[part], line_of(position, tile, values, next_values), lane);
        continue;
      }
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        const int begin = threadIdx.x % THREADS / 32 * 8 + half * HALF_ROWS, end = min(begin + 8, span.rows());
#pragma unroll 1
        for (int node = begin / GROUP; node * GROUP < end; ++node) {
          const int deepest = depths[node];
          // Nothing of it weighs, or it has no place and counts for nothing.
          if (first > span.length + deepest || span.length + node > last_place) continue;
          const bool own = (begin + lane / 4) / GROUP == node;
          unsigned mine[4] = {0, 0, 0, 0};
          mine[half] = own ? weights[part][half] : 0, mine[half + 2] = own ? weights[part][half + 2] : 0;
          const int place = depth < 0 ? position : span.length + lineage[node * span.width + min(depth, deepest)];
          add_part(sums, mine, line_of(place, tile, values, next_values), lane);
        }
      }
    }
  }

 private:
  // Where the values of a place lie: the address of a line, and in bits below it how its pieces are turned.
  static __device__ __forceinline__ unsigned line_of(int place, int tile, unsigned values, unsigned next_values) {
    return (place / TOKENS == tile ? values : next_values) + place % TOKENS * PANEL_BYTES + place % 8;
  }

  // Adds sixteen weighted values, whose lines the lanes know twice.
  template <int COUNT>
  static __device__ __forceinline__ void add_part(float (&sums)[COUNT], const unsigned (&weights)[4], unsigned line, int lane) {
    const unsigned turned = line % 8, from = line - turned;
#pragma unroll
    for (int eight = 0; eight < COLUMNS / 8; eight += 2) {
      unsigned blocks[4];
      load_turned(blocks, from + ((eight + lane / 16 ^ turned) << 4));
      multiply_values_of_warp(sums[eight * 4], sums[eight * 4 + 1], sums[eight * 4 + 2], sums[eight * 4 + 3], weights,
                              blocks[0], blocks[1]);
      multiply_values_of_warp(sums[eight * 4 + 4], sums[eight * 4 + 5], sums[eight * 4 + 6], sums[eight * 4 + 7], weights,
                              blocks[2], blocks[3]);
    }
  }
};
