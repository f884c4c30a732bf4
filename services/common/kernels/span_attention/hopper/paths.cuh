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
  int* positions;
  int last_place;  // that the sequence has a block for

  __device__ __forceinline__ Paths(unsigned char* memory)
      : scores(reinterpret_cast<float*>(memory)),
        lineage(memory + (GROUP_ROWS * SCORE_LINE + MOST_NODES) * sizeof(float)),
        positions(reinterpret_cast<int*>(memory) + GROUP_ROWS * SCORE_LINE) {}

  // Threads store what all read later. What stands behind a node in its lineage says nothing.
  __device__ __forceinline__ void store(const Span& span, const int* from) const {
    for (int at = threadIdx.x; at < span.width * span.width; at += blockDim.x) lineage[at] = from[at];
    for (int node = threadIdx.x; node < span.width; node += blockDim.x) positions[node] = span.positions[node];
  }

  // Rows behind the last block of a sequence lie in a block of padding, which may hold anything.
  __device__ __forceinline__ void find_last(const Span& span, const int* table) {
    last_place = span.total - 1;
    for (int block = last_place / BLOCK; block > span.length / BLOCK; --block)
      if (table[block] == 0) last_place = block * BLOCK - 1;
  }

  __device__ __forceinline__ int depth_of(const Span& span, int node) const {
    return max(min(positions[node], span.total - 1) - span.length, 0);
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
      const int own = row + half * HALF_ROWS, node = min(own / GROUP, span.width - 1), deepest = depth_of(span, node);
      const unsigned char* const rows = lineage + node * span.width;
#pragma unroll
      for (int eight = 0; eight < TOKENS / 8; ++eight) {
        const int first = tile * TOKENS + eight * 8 - span.length, depth = first + lane % 4 * 2, at = eight * 4 + half * 2;
        if (first <= -8) continue;
        float found[2] = {-INFINITY_F, -INFINITY_F};
        if (first < span.width) {  // for all threads alike, and none waits for one number before it asks for others
#pragma unroll
          for (int each = 0; each < 2; ++each)
            found[each] = scores[own * SCORE_LINE + rows[min(max(depth + each, 0), deepest)]];
        }
#pragma unroll
        for (int each = 0; each < 2; ++each)
          if (depth + each >= 0) to[at + each] = depth + each <= deepest ? found[each] : -INFINITY_F;
      }
    }
    __syncwarp();
  }

  // Adds a tile's weighted values; those of the next tile may be on a path, too. Little code: a round runs each layer's
  // attention once, so what is unrolled comes from memory each time.
  template <int COUNT>
  __device__ __forceinline__ void add(float (&sums)[COUNT], const unsigned (&weights)[TOKENS / 16][4], const Span& span,
                                      int tile, unsigned values, unsigned next_values, int lane) const {
#pragma unroll 1
    for (int part = 0; part < TOKENS / 16; ++part) {
      const int first = tile * TOKENS + part * 16, position = first + lane % 16;
      if (first >= span.length + span.width) break;  // nothing weighs
      unsigned all[4];
      choose(all, weights, part);
      const bool shared = first + 16 <= span.length;
#pragma unroll 1
      for (int each = 0; each < (shared ? 1 : HALVES * NODES); ++each) {
        const int half = each / NODES, node = first_node(half) + each % NODES;
        if (!shared && !weighs(span, half, node, first)) continue;
        const bool mine = (first_row(half) + lane / 4) / GROUP == node;
        unsigned own[4];
#pragma unroll
        for (int number = 0; number < 4; ++number) own[number] = shared || (mine && number % 2 == half) ? all[number] : 0;
        const unsigned line = shared ? line_of(position, tile, values, next_values)
                                     : line_on_path(span, node, position, tile, values, next_values);
        add_part(sums, own, line, lane);
      }
    }
  }

 private:
  static __device__ __forceinline__ void choose(unsigned (&one)[4], const unsigned (&weights)[TOKENS / 16][4], int part) {
#pragma unroll
    for (int each = 0; each < TOKENS / 16; ++each)
#pragma unroll
      for (int number = 0; number < 4; ++number)
        if (each == part) one[number] = weights[each][number];
  }

  static constexpr int NODES =
      8 % GROUP && GROUP % 8 ? (8 + GROUP - 2) / GROUP + 1 : (8 + GROUP - 1) / GROUP;  // of a half's rows

  // A warp has eight rows of each half.
  static __device__ __forceinline__ int first_row(int half) { return threadIdx.x % THREADS / 32 * 8 + half * HALF_ROWS; }
  static __device__ __forceinline__ int first_node(int half) { return first_row(half) / GROUP; }

  // Whether a node has rows here, and its own position in or behind a step. One without a place counts for nothing.
  __device__ __forceinline__ bool weighs(const Span& span, int half, int node, int first) const {
    if (node * GROUP >= min(first_row(half) + 8, span.rows()) || span.length + node > last_place) return false;
    return first <= span.length + depth_of(span, node);
  }

  // The line of a position on a node's path; behind the node it is the node's own.
  __device__ __forceinline__ unsigned line_on_path(const Span& span, int node, int position, int tile, unsigned values,
                                                   unsigned next_values) const {
    const int known = min(node, span.width - 1), depth = min(position - span.length, depth_of(span, known));
    const int place = depth < 0 ? position : span.length + lineage[known * span.width + depth];
    return line_of(place, tile, values, next_values);
  }

  // Where the values of a place lie: the address of a line, and in bits below it how its pieces are turned.
  static __device__ __forceinline__ unsigned line_of(int place, int tile, unsigned values, unsigned next_values) {
    return (place / TOKENS == tile ? values : next_values) + place % TOKENS * PANEL_BYTES + place % 8;
  }

  // Adds sixteen weighted values, whose lines the lanes know twice.
  template <int COUNT>
  static __device__ __forceinline__ void add_part(float (&sums)[COUNT], const unsigned (&weights)[4], unsigned line, int lane) {
    const unsigned turned = line % 8, from = line - turned;
    unsigned loaded[COLUMNS / 16][4];
#pragma unroll
    for (int pair = 0; pair < COLUMNS / 16; ++pair) load_turned(loaded[pair], from + ((pair * 2 + lane / 16 ^ turned) << 4));
#pragma unroll
    for (int eight = 0; eight < COLUMNS / 8; eight += 2) {
      const unsigned (&blocks)[4] = loaded[eight / 2];
      multiply_values_of_warp(sums[eight * 4], sums[eight * 4 + 1], sums[eight * 4 + 2], sums[eight * 4 + 3], weights,
                              blocks[0], blocks[1]);
      multiply_values_of_warp(sums[eight * 4 + 4], sums[eight * 4 + 5], sums[eight * 4 + 6], sums[eight * 4 + 7], weights,
                              blocks[2], blocks[3]);
    }
  }
};
