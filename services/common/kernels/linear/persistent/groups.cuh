// How a tile is multiplied where rows of e4m3 codes and their weight come in groups.
//
// A row has a scale for each 128 inputs, and so have each 128 lines of the weight: the tensor cores add up as many inputs, and what they
// leave is scaled and added in order. Where a stage has two groups one is multiplied while the other is added.

#pragma once

#include "build.cuh"
#include "wgmma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/persistent/sizes.cuh"

constexpr int SHARED_LINES = 128, WINDOW = 8;
constexpr int BLOCKS = SHARED_LINES % BAND == 0 ? 1 : 2;            // of lines with a scale that a band is part of
constexpr int SCALED = 2 + HALVES * BLOCKS;                         // a thread's rows, and blocks of each half
constexpr int FACTORS = 2 * HALVES * BLOCKS;                        // both rows' scales times each block's
constexpr int CHUNK = (BAND & -BAND) < HALF ? BAND & -BAND : HALF;  // of lines, where a block may begin

// The scales of a tile that a thread needs. The four lanes of a row share out a window of groups, and the next window is read while
// this one serves: scales may come from memory.
struct GroupScales {
  const float *of_lines, *of_rows;
  int from[SCALED];  // of rows first, then of blocks
  float now[SCALED][2], next[SCALED][2];
  int limits[HALVES];  // lines of the first block
  int groups;

  __device__ __forceinline__ void begin(const float* lines, const float* rows, const Ends& ends, int row, int line, int all,
                                        int lane) {
    of_lines = lines, of_rows = rows, groups = all;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = row + half * 8;
      from[half] = (own < ends.rows ? own : 0) * groups;
    }
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int first = line + half * ends.outputs, block = first / SHARED_LINES;
      const int last = (min(line + BAND, ends.outputs) + half * ends.outputs - 1) / SHARED_LINES;
      limits[half] = SHARED_LINES - first % SHARED_LINES;
#pragma unroll
      for (int each = 0; each < BLOCKS; ++each) from[2 + half * BLOCKS + each] = (each ? last : block) * groups;
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
        into[one][each] = group < groups ? (one < 2 ? of_rows : of_lines)[from[one] + group] : 0.f;
      }
    }
  }

  // Multiplies a group's scales, of each row and block, while it is under way. Groups come in order.
  __device__ __forceinline__ void take(float (&both)[FACTORS], int group, int lane) {
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
    for (int each = 0; each < FACTORS; ++each) both[each] = __fmul_rn(scales[2 + each / 2], scales[each % 2]);
  }

  // Adds a group's sums, each times both scales.
  template <class Sum>
  __device__ __forceinline__ void add(const Sum (&part)[LINES / 2], Sum (&sums)[LINES / 2],
                                      const float (&both)[FACTORS]) const {
#pragma unroll
    for (int chunk = 0; chunk < LINES / CHUNK; ++chunk) {
      const int half = chunk * CHUNK / HALF, first = half * BLOCKS * 2;
      const bool second = BLOCKS > 1 && chunk * CHUNK - half * HALF >= limits[half];
      float factors[2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        factors[row] = second ? both[first + (BLOCKS - 1) * 2 + row] : both[first + row];
        if (BLOCKS > 1) asm volatile("" : "+f"(factors[row]));  // chosen once, not for each number
      }
#pragma unroll
      for (int number = 0; number < CHUNK / 2; ++number) {
        const int at = chunk * (CHUNK / 2) + number;
        sums[at] = __fmaf_rn(part[at], factors[number / 2 % 2], sums[at]);
      }
    }
  }
};

// Asks for a group of a stage, by 64 rows of a warpgroup.
template <class Sum>
__device__ __forceinline__ void multiply_group(Sum (&part)[LINES / 2], const Ring& ring, int stage, int sub, int group) {
  const unsigned long long x = descriptor(ring.x(stage, sub) + group * 64 * SUB_BYTES);
  const unsigned long long weight = descriptor(ring.weight(stage, sub));
  begin_products();
#pragma unroll
  for (int at = 0; at < SUB / 16; ++at) mma(part, x + 2 * at, weight + 2 * at, at > 0);
  end_products();
}
