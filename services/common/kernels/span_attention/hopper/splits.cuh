// How many tiles a split has, by the last position that a row sees, as `splits.py` says.

#pragma once

#include "build.cuh"

__device__ __forceinline__ int tiles_of_split(int last) {
  const int tiles = max(last, 0) / (TOKENS * SPLITS) + 1, shift = max(29 - __clz(tiles), 0);
  return (tiles + (1 << shift) - 1) >> shift << shift;
}
