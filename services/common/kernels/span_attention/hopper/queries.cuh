// Queries of an item, in shared memory as an operand. Rows behind the last one are zero.

#pragma once

#include "build.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

// Which row of a warpgroup's a line of its product is: a warp has sixteen lines, eight of each half.
__device__ __forceinline__ int row_of(int line) { return line % 16 / 8 * HALF_ROWS + line / 16 * 8 + line % 8; }

// What a thread copies of them. A warp copies the rows that it multiplies, or every so many of them where COPIERS share those.
// Where its pieces lie is found before the wait for the kernel in front.
template <int COPIERS>
struct Queries {
  static constexpr int EIGHTS = COLUMNS * SPREAD / 8, ROWS_EACH = 32 / EIGHTS, COPIES = 16 / ROWS_EACH / COPIERS;
  static constexpr unsigned NOTHING_THERE = ~0u;
  unsigned from[COPIES], to[COPIES];

  // Warpgroups that share rows copy some panels each.
  __device__ __forceinline__ Queries(unsigned queries, const ItemEnds& ends, const Item& item, int in_tile, int copier) {
    const int lane = threadIdx.x % 32, eight = (SPREAD > 1 ? 0 : ends.column / 8) + lane % EIGHTS;
#pragma unroll
    for (int copy = 0; copy < COPIES; ++copy) {
      const int line = threadIdx.x % THREADS / 32 * 16 + (copy * COPIERS + copier) * ROWS_EACH + lane / EIGHTS;
      const int own = in_tile + line, row = item.span.first_row + in_tile + row_of(line);
      from[copy] = row < item.span.rows() ? ends.line(item, row) * SIZE + eight * 8 : NOTHING_THERE;
      to[copy] = queries + eight / 8 * QUERY_PANEL + own * PANEL_BYTES + ((eight % 8 ^ own % 8) << 4);
      if (GROUPS == 1) from[copy] = kept(from[copy]), to[copy] = kept(to[copy]);  // others lack registers
    }
  }

  __device__ __forceinline__ void ask(const unsigned short* q) const {
#pragma unroll
    for (int copy = 0; copy < COPIES; ++copy) {
      const bool there = from[copy] != NOTHING_THERE;
      copy_sixteen(to[copy], q + (there ? from[copy] : 0), there);
    }
  }
};
