// How a warp ends its lines of a product: of each eight rows a lane has two neighbours, of the lines that it took.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "bfloat16.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/packed/left.cuh"

constexpr int OWN = X_ROWS / 4;  // rows of a lane
// What results wait for is read before the products, which hide how long that takes, where threads have registers for it.
constexpr bool EARLY = OWN * PARTS <= 8 || WARPS <= 8;
constexpr int ONCE = EARLY || OWN < 8 ? OWN : 8;  // rows that are read at once, before results of any of them are stored

__device__ __forceinline__ float rounded(float x) { return low_of(pair_of(x, 0.f)); }
__device__ __forceinline__ unsigned short bits_of(float x) { return (unsigned short)pair_of(x, 0.f); }
__device__ __forceinline__ float number(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

// The row of the `own`-th of a lane's rows, and the place of its sum of a part.
__device__ __forceinline__ int row_at(int own, int lane) { return own / 2 * 8 + lane % 4 * 2 + own % 2; }
__device__ __forceinline__ int sum_at(int own, int part) { return own / 2 * 4 + part * 2 + own % 2; }

// What a lane's results wait for. Lines of a part behind the last have no output.
struct Beside {
  const Ends& ends;
  int lane, lines[PARTS];
  float roots[ONCE];
  unsigned short streams[PARTS][ONCE], norms[PARTS];

  __device__ __forceinline__ Beside(const Ends& ends, int first, int place, int lane) : ends(ends), lane(lane) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int eight = eight_of(place, part);
      lines[part] = eight < TILE_LINES ? first + eight / HALVES + line_of(lane) : ends.outputs;
    }
  }

  __device__ __forceinline__ bool has(int own, int part) const {
    return row_at(own, lane) < ends.rows && lines[part] < ends.outputs;
  }
  __device__ __forceinline__ size_t place(int own, int part) const {
    return (size_t)row_at(own, lane) * ends.outputs + lines[part];
  }

  __device__ __forceinline__ void read(int first) {
#pragma unroll
    for (int one = 0; one < ONCE; ++one) {
      const int row = row_at(first + one, lane);
      const bool waits = KIND != ADDED && ends.squares && row < ends.rows;
      roots[one] = waits ? root_scale(ends.squares[row], ends.inverse_depth, ends.eps) : 1.f;
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        streams[part][one] = KIND == ADDED && has(first + one, part) ? ends.stream[place(first + one, part)] : 0;
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      norms[part] = KIND == ADDED && lines[part] < ends.outputs ? ends.norm[lines[part]] : 0;
  }

  // The place of a row's, which are read now if they were not before.
  __device__ __forceinline__ int at(int own) {
    if (!EARLY && own % ONCE == 0) read(own);
    return own % ONCE;
  }

  __device__ __forceinline__ float norm(int part) const {
    const float norm = number(norms[part]);
    return ends.offset != 0.f ? __fadd_rn(norm, ends.offset) : norm;
  }
};

__device__ __forceinline__ void end_plain(const Sums& sums, Beside& beside) {
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    const float root = beside.roots[beside.at(own)];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const float result = __fmul_rn(rounded(sums[sum_at(own, part)]), root);
      if (beside.has(own, part)) beside.ends.out[beside.place(own, part)] = bits_of(result);
    }
  }
}

__device__ __forceinline__ void end_gated(const Sums& sums, Beside& beside) {
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    const float root = beside.roots[beside.at(own)];
    const float gate = __fmul_rn(rounded(sums[sum_at(own, 0)]), root), up = __fmul_rn(rounded(sums[sum_at(own, 1)]), root);
    if (beside.has(own, 0)) beside.ends.out[beside.place(own, 0)] = bits_of(gated(gate, up));
  }
}

// Adds a row's numbers of a lane to the stream, and returns their squares.
__device__ __forceinline__ long long add_row(const Sums& sums, Beside& beside, int own) {
  const int at = beside.at(own);
  long long total = 0;
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    const float wide = rounded(__fadd_rn(rounded(sums[sum_at(own, part)]), number(beside.streams[part][at])));
    if (!beside.has(own, part)) continue;
    beside.ends.out[beside.place(own, part)] = bits_of(wide);
    beside.ends.scaled[beside.place(own, part)] = bits_of(__fmul_rn(wide, beside.norm(part)));
    total += square(wide);
  }
  return total;
}

// Integers add up to the same sum in any order. A CTA adds once: additions to the same few places go one by one.
__device__ __forceinline__ void end_added(const Sums& sums, Beside& beside, int place) {
  constexpr int ENDING = WARPS / (1 + PAIRED);
  __shared__ long long totals_of[ENDING][X_ROWS];
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    long long total = add_row(sums, beside, own);
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) total += __shfl_xor_sync(~0u, total, apart);
    if (beside.lane < 4) totals_of[place][row_at(own, beside.lane)] = total;
  }
  asm volatile("bar.sync 1, %0;" ::"n"(ENDING * 32) : "memory");
  for (int row = place * 32 + beside.lane; row < min(X_ROWS, beside.ends.rows); row += ENDING * 32) {
    long long total = 0;
#pragma unroll
    for (int each = 0; each < ENDING; ++each) total += totals_of[each][row];
    atomicAdd(beside.ends.added + row, (unsigned long long)total);
  }
}
