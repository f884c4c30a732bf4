// How a tile is multiplied where rows of e4m3 codes and their weight come in groups.
//
// A row has a scale for each 128 inputs, and so have each 128 lines of the weight: the tensor cores add up as many inputs, and what they
// leave is scaled and added in order. All groups of a stage are multiplied together, for a thread waits long for one.

#pragma once

#include "build.cuh"
#include "wgmma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/persistent/sizes.cuh"

constexpr int SHARED_LINES = 128, WINDOW = 8;
constexpr int BLOCKS = SHARED_LINES % BAND == 0 ? 1 : 2;  // of lines with a scale that a band is part of
constexpr int SCALED = 2 + HALVES * BLOCKS;               // a thread's rows, and blocks of each half

// The scales of a tile that a thread needs. The four lanes of a row share out a window of groups, and the next window is read while
// this one serves: scales may come from memory.
struct GroupScales {
  const float* from[SCALED];
  float now[SCALED][2], next[SCALED][2];
  int limits[HALVES];  // lines of the first block
  int groups;

  __device__ __forceinline__ void begin(const float* of_lines, const float* of_rows, const Ends& ends, int row, int line,
                                        int all, int lane) {
    groups = all;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = row + half * 8;
      from[half] = of_rows + (size_t)(own < ends.rows ? own : 0) * groups;
    }
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int first = line + half * ends.outputs, block = first / SHARED_LINES;
      const int last = (min(line + BAND, ends.outputs) + half * ends.outputs - 1) / SHARED_LINES;
      limits[half] = SHARED_LINES - first % SHARED_LINES;
#pragma unroll
      for (int each = 0; each < BLOCKS; ++each)
        from[2 + half * BLOCKS + each] = of_lines + (size_t)(each ? last : block) * groups;
    }
    read(now, 0, lane);
    read(next, WINDOW, lane);
  }

  __device__ __forceinline__ void read(float (&into)[SCALED][2], int first, int lane) const {
#pragma unroll
    for (int one = 0; one < SCALED; ++one) {
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        const int group = first + lane % 4 * 2 + each;
        into[one][each] = group < groups ? from[one][group] : 0.f;
      }
    }
  }

  // Adds a group's sums, each times the scales of its row and of its block. Groups come in order.
  template <class Sum>
  __device__ __forceinline__ void add(const Sum (&part)[LINES / 2], Sum (&sums)[LINES / 2], int group, int lane) {
    if (group > 0 && group % WINDOW == 0) {
#pragma unroll
      for (int one = 0; one < SCALED; ++one) now[one][0] = next[one][0], now[one][1] = next[one][1];
      read(next, group + WINDOW, lane);
    }
    float scales[SCALED];
#pragma unroll
    for (int one = 0; one < SCALED; ++one)
      scales[one] = __shfl_sync(~0u, group % 2 ? now[one][1] : now[one][0], lane / 4 * 4 + group % WINDOW / 2);
#pragma unroll
    for (int eight = 0; eight < LINES / 8; ++eight) {
      const int half = eight * 8 / HALF, first = 2 + half * BLOCKS;
      const bool second = BLOCKS > 1 && eight * 8 - half * HALF >= limits[half];
      const float block = second ? scales[first + BLOCKS - 1] : scales[first];
#pragma unroll
      for (int at = 0; at < 4; ++at)
        sums[eight * 4 + at] = __fmaf_rn(part[eight * 4 + at], __fmul_rn(block, scales[at / 2]), sums[eight * 4 + at]);
    }
  }
};

// Multiplies the groups of a stage by 64 rows of a warpgroup, each into sums of its own.
template <class Sum>
__device__ __forceinline__ void multiply_groups(Sum (&parts)[SUBS][LINES / 2], const Ring& ring, int stage, int group) {
  begin_products();
#pragma unroll
  for (int sub = 0; sub < SUBS; ++sub) {
    const unsigned long long x = descriptor(ring.x(stage, sub) + group * 64 * SUB_BYTES);
    const unsigned long long weight = descriptor(ring.weight(stage, sub));
#pragma unroll
    for (int at = 0; at < SUB / 16; ++at) mma(parts[sub], x + 2 * at, weight + 2 * at, at > 0);
  }
  end_products();
  await_products<0>();
#pragma unroll
  for (int sub = 0; sub < SUBS; ++sub) hold(parts[sub]);
}
