// SwiGLU of a tile while the products of the next one run. The matrix units would else wait for it, since all warps have
// their sums at once. A thread keeps its sums rounded until then, in half as many registers.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/persistent/scales.cuh"
#include "linear/persistent/sizes.cuh"

struct NothingLater {
  static constexpr int PARTS = 0;
  __device__ __forceinline__ void keep(const Sum (&)[LINES / 2], const Ends&, int, int) {}
  __device__ __forceinline__ void end(const Ends&, int, int) {}
};

// Halves of a tile that gate: eights of lines end one after the other.
struct LaterGates {
  static constexpr int PARTS = HALF / 8;
  unsigned gates[PARTS * 2], ups[PARTS * 2];
  int row = 0, line = 0, rows = 0;
  float roots[2];

  __device__ __forceinline__ void keep(const Sum (&sums)[LINES / 2], const Ends& ends, int of_row, int of_line) {
    row = of_row, line = of_line, rows = ends.rows;
#pragma unroll
    for (int pair = 0; pair < PARTS * 2; ++pair) {
      const int gate = pair * 2, up = gate + HALF / 2 * (HALVES - 1);
      gates[pair] = pair_of(sums[gate], sums[gate + 1]), ups[pair] = pair_of(sums[up], sums[up + 1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = row + half * 8;
      const bool waits = ends.squares && own < rows;
      roots[half] = waits ? root_scale(ends.squares[own], ends.inverse_depth, ends.eps) : 1.f;
    }
  }

  __device__ __forceinline__ void end(const Ends& ends, int part, int lane) {
    const int at = part * 8 + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned gate = gates[part * 2 + half], up = ups[part * 2 + half];
      const int own = row + half * 8;
      const float low = gated(__fmul_rn(low_of(gate), roots[half]), __fmul_rn(low_of(up), roots[half]));
      const float high = gated(__fmul_rn(high_of(gate), roots[half]), __fmul_rn(high_of(up), roots[half]));
      if (own < rows && at < BAND && line + at < ends.outputs)
        *reinterpret_cast<unsigned*>(ends.out + (size_t)own * ends.outputs + line + at) = pair_of(low, high);
    }
  }
};

template <bool>
struct Either {
  using Type = NothingLater;
};

template <>
struct Either<true> {
  using Type = LaterGates;
};

using Waiting = Either<LATER>::Type;
