// Nodes of a tree of narrow heads: what lies from the length's step on, two steps of sixteen positions.
//
// Keys and values of nodes lie in the places of their rows, from the sequence's length on. In a chain the ancestor of a depth lies
// in the place of that depth, and sums are in the order of places. A score is of one key: a warp computes those of all places of
// both steps, and each row reads the ones on its node's path, in their order. Of values sixteen are added at once: those of a
// node's path for this node's rows alone. The weights of its other rows are zero meanwhile, which adds nothing.

#pragma once

#include "build.cuh"
#include "bfloat16.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int STEP = 16, PLACES = 2 * STEP, MOST_NODES = STEP + 1;  // which two steps hold, wherever they begin
constexpr int PLACE_LINE = PLACES + 8;                              // scores of a row; those of eight lie in different banks

// Where the keys, or the values, of the tile of the length lie, and of the one behind it.
struct TwoTiles {
  unsigned here, behind;
  int first;  // the first position of the former

  // The address of a place's line, and in bits below it how its pieces are turned.
  __device__ __forceinline__ unsigned line(int place) const {
    return (place - first < TOKENS ? here : behind) + place % TOKENS * PANEL_BYTES + place % 8;
  }
};

// A piece of sixteen bytes of a line.
__device__ __forceinline__ unsigned piece_of(unsigned line, int piece) {
  const unsigned turned = line % 8;
  return line - turned + ((piece ^ turned) << 4);
}

// Scores of a thread's rows in both steps, as a product gives them: of eights of positions.
struct StepScores {
  float of[2][8];
};

struct Steps {
  float* scores;          // of a row, by places
  unsigned char* places;  // by node and position, both behind the first of the length's step; behind the node its own
  int* depths;            // of nodes
  int first, last_place;  // of the length's step; and the last place that the sequence has a block for

  static constexpr int BYTES = GROUP_ROWS * PLACE_LINE * 4 + MOST_NODES * (PLACES + 4);

  __device__ __forceinline__ Steps(unsigned char* memory, const Span& span)
      : scores(reinterpret_cast<float*>(memory)),
        places(memory + GROUP_ROWS * PLACE_LINE * 4),
        depths(reinterpret_cast<int*>(memory + GROUP_ROWS * PLACE_LINE * 4 + MOST_NODES * PLACES)),
        first(span.length & ~(STEP - 1)) {}

  // Whether the second step lies in the tile behind.
  __device__ __forceinline__ bool apart() const { return first % TOKENS == TOKENS - STEP; }

  // Some threads store what all read later. What stands behind a node in its lineage says nothing.
  __device__ __forceinline__ void store(const Span& span, const int* lineage, int thread, int threads) const {
    const int before = span.length - first;
    for (int at = thread; at < span.width * PLACES; at += threads) {
      const int node = at / PLACES, depth = at % PLACES - before;
      const int deepest = min((int)span.positions[node], span.total - 1) - span.length;
      places[at] = depth < 0 ? depth + before : before + lineage[node * span.width + max(min(depth, deepest), 0)];
      if (at % PLACES == 0) depths[node] = deepest;
    }
  }

  // Rows behind the last block of a sequence lie in a block of padding, which may hold anything.
  __device__ __forceinline__ void find_last(const Span& span, const int* table) {
    last_place = span.total - 1;
    for (int block = last_place / BLOCK; block > span.length / BLOCK; --block)
      if (table[block] == 0) last_place = block * BLOCK - 1;
  }

  // Scores of a warp's rows along the paths of their nodes; what a node does not see is hidden. The warp's lines of queries lie
  // one behind another.
  __device__ __forceinline__ void score(StepScores& found, const Span& span, const TwoTiles& keys, unsigned queries, int row,
                                        int lane) const {
    const unsigned own_line = queries + lane % 16 * PANEL_BYTES + lane % 8;
#pragma unroll 1
    for (int step = 0; step < 2; ++step) {
      const unsigned line = keys.line(first + step * STEP + lane / 16 * 8 + lane % 8);
      float sums[8] = {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int part = 0; part < SIZE / 16; ++part) {
        unsigned own[4], blocks[4];
        load_blocks(own, piece_of(own_line, part * 2 + lane / 16));
        load_blocks(blocks, piece_of(line, part * 2 + lane / 8 % 2));
        multiply_values_of_warp(sums[0], sums[1], sums[2], sums[3], own, blocks[0], blocks[1]);
        multiply_values_of_warp(sums[4], sums[5], sums[6], sums[7], own, blocks[2], blocks[3]);
      }
#pragma unroll
      for (int each = 0; each < 4; ++each)
        *reinterpret_cast<float2*>(scores + (row + each % 2 * HALF_ROWS) * PLACE_LINE + step * STEP + each / 2 * 8 +
                                   lane % 4 * 2) = make_float2(sums[each * 2], sums[each * 2 + 1]);
    }
    __syncwarp();
    const int before = span.length - first;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int own_row = row + half * HALF_ROWS, node = min(own_row / GROUP, span.width - 1), last = before + depths[node];
#pragma unroll
      for (int eight = 0; eight < PLACES / 8; ++eight) {
        const int column = eight * 8 + lane % 4 * 2;
        const unsigned both = *reinterpret_cast<const unsigned short*>(places + node * PLACES + column);
        float* const to = found.of[eight / 2] + eight % 2 * 4 + half * 2;
        const float one = scores[own_row * PLACE_LINE + both % 256], other = scores[own_row * PLACE_LINE + both / 256];
        to[0] = column <= last ? one : -INFINITY_F;
        to[1] = column + 1 <= last ? other : -INFINITY_F;
      }
    }
  }

  // Adds the values of a step, along each node's path. Lines of all nodes of a half are known before the first is used.
  __device__ __forceinline__ void add(float (&sums)[COLUMNS / 2], const unsigned (&weights)[4], const Span& span, int step,
                                      const TwoTiles& values, int lane) const {
#pragma unroll 1
    for (int half = 0; half < HALVES; ++half) {
      const int begin = first_row(half) / GROUP, own_node = (first_row(half) + lane / 4) / GROUP;
      unsigned lines[NODES];
      bool some[NODES], any = false;
#pragma unroll
      for (int each = 0; each < NODES; ++each) {
        some[each] = weighs(span, half, begin + each, step);
        any |= some[each];
        const int place = places[min(begin + each, span.width - 1) * PLACES + step * STEP + lane % 16];
        // One that weighs nothing has the length's own, which is there wherever another node weighs.
        lines[each] = values.line(some[each] ? first + place : span.length);
      }
      if (!any) continue;
#pragma unroll
      for (int each = 0; each < NODES; ++each) {
        const bool mine = some[each] && own_node == begin + each;
        const unsigned own[4] = {mine && half == 0 ? weights[0] : 0, mine && half == 1 ? weights[1] : 0,
                                 mine && half == 0 ? weights[2] : 0, mine && half == 1 ? weights[3] : 0};
        add_lines(sums, own, lines[each], lane);
      }
    }
  }

  // Adds sixteen weighted values, whose lines the lanes know twice.
  static __device__ __forceinline__ void add_lines(float (&sums)[COLUMNS / 2], const unsigned (&weights)[4], unsigned line,
                                                   int lane) {
#pragma unroll
    for (int pair = 0; pair < COLUMNS / 16; ++pair) {
      unsigned blocks[4];
      load_turned(blocks, piece_of(line, pair * 2 + lane / 16));
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        float* const to = sums + (pair * 2 + eight) * 4;
        multiply_values_of_warp(to[0], to[1], to[2], to[3], weights, blocks[eight * 2], blocks[eight * 2 + 1]);
      }
    }
  }

 private:
  static constexpr int NODES =
      8 % GROUP && GROUP % 8 ? (8 + GROUP - 2) / GROUP + 1 : (8 + GROUP - 1) / GROUP;  // of a half's rows

  // A warp has eight rows of each half.
  static __device__ __forceinline__ int first_row(int half) { return threadIdx.x % THREADS / 32 * 8 + half * HALF_ROWS; }

  // Whether a node has rows here, and its own position in or behind a step. One without a place counts for nothing.
  __device__ __forceinline__ bool weighs(const Span& span, int half, int node, int step) const {
    if (node * GROUP >= min(first_row(half) + 8, span.rows()) || span.length + node > last_place) return false;
    return first + step * STEP <= span.length + depths[node];
  }
};
