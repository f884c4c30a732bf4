// What a product ends with: where results go, what stands beside them, and what they wait for.

#pragma once

#include "arithmetic.cuh"

struct Ends {
  unsigned short *out, *scaled;
  const unsigned short *stream, *norm;
  const long long* squares;
  unsigned long long* added;
  int rows, outputs;
  float inverse_depth, eps, offset;
};

// What a row is multiplied by for its norm; 1 where it waits for none.
__device__ __forceinline__ float root_of(const Ends& ends, int row) {
  return ends.squares && row < ends.rows ? root_scale(ends.squares[row], ends.inverse_depth, ends.eps) : 1.f;
}
