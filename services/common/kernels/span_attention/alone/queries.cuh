// The queries of a row, eight at most, as matrix instructions take them.

#pragma once

#include "build.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/alone/heads.cuh"

constexpr unsigned ONES = 0x3F803F80;  // two of them

struct RowQueries {
  unsigned pairs[STEPS][2];

  // Lanes without a row have another's, and nobody reads what becomes of it.
  __device__ __forceinline__ void read(const unsigned short (&rows)[ROWS][ROW], int lane) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const unsigned short* from = rows[lane / 4 % GROUP] + step * 16 + lane % 4 * 2;
      pairs[step][0] = pair_at(from), pairs[step][1] = pair_at(from + 8);
    }
  }
};
