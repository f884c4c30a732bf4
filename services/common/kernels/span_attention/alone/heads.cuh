// The heads of a row: divided by the stream's norm, biased, normed and turned, as `store_qkv` does it. A warp makes
// a head. A lane has two neighbours of its first half and the two that turn with them.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "bfloat16.cuh"

constexpr int KEY = GROUP, VALUE = GROUP + 1;  // of a row's heads: behind the queries

struct Sources {
  const unsigned short *mixed, *bias, *norm;
  const long long* squares;
  const float *cosines, *sines;
  float inverse_width, eps, offset;

  __device__ __forceinline__ float scale() const { return squares ? root_scale(__ldcg(squares), inverse_width, eps) : 1.f; }
};

__device__ __forceinline__ unsigned pair_at(const unsigned short* from) { return *reinterpret_cast<const unsigned*>(from); }

// The sum over a warp, by pieces whose sums fit a word: integers add up to the same in any order.
__device__ __forceinline__ long long sum_of_warp(unsigned long long number) {
  constexpr int BITS = 27;
  unsigned pieces[3];
#pragma unroll
  for (int piece = 0; piece < 3; ++piece)
    pieces[piece] = __reduce_add_sync(~0u, (unsigned)(number >> piece * BITS) & ((1u << BITS) - 1));
  const unsigned long long low = pieces[0], middle = pieces[1], high = pieces[2];
  return (long long)(low + (middle << BITS) + (high << 2 * BITS));
}

struct Line {
  int row, place;  // which of the CTA's rows, and its lane's first number among the product's
  unsigned mixed[2], bias[2], norm[2];
  float2 cosine, sine;

  // What does not come from the kernel before.
  __device__ __forceinline__ void find(const Sources& from, int which, int head, int kv_heads, int lane) {
    row = which;
    place = (row < GROUP ? head * GROUP + row : (GROUP + row - KEY) * kv_heads + head) * SIZE + lane * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      bias[half] = from.bias ? pair_at(from.bias + place + half * SIZE / 2) : 0;
      norm[half] = from.norm && row != VALUE ? pair_at(from.norm + place + half * SIZE / 2) : 0;
    }
    cosine = __ldcg(reinterpret_cast<const float2*>(from.cosines + lane * 2));
    sine = __ldcg(reinterpret_cast<const float2*>(from.sines + lane * 2));
  }

  __device__ __forceinline__ void load(const Sources& from) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      mixed[half] = __ldcg(reinterpret_cast<const unsigned*>(from.mixed + place + half * SIZE / 2));
  }

  // The pairs of both halves, as they are stored.
  __device__ __forceinline__ void make(const Sources& from, float scale, unsigned (&pairs)[2]) const {
    float x[2][2];
    scaled(x, scale, from.bias != nullptr);
    if (row != VALUE) {
      if (from.norm) divide(x, from, root_scale(sum_of_warp(squares(x)), 1.f / SIZE, from.eps));
      turn(x);
    }
    round(x, pairs);
  }

  // Of a half, the first number and its neighbour.
  __device__ __forceinline__ void scaled(float (&x)[2][2], float scale, bool biased) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      x[half][0] = __fmul_rn(low_of(mixed[half]), scale), x[half][1] = __fmul_rn(high_of(mixed[half]), scale);
      if (biased) {
        x[half][0] = __fadd_rn(x[half][0], low_of(bias[half]));
        x[half][1] = __fadd_rn(x[half][1], high_of(bias[half]));
      }
    }
  }

  static __device__ __forceinline__ long long squares(const float (&x)[2][2]) {
    long long total = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) total += square(x[half][0]) + square(x[half][1]);
    return total;
  }

  __device__ __forceinline__ void divide(float (&x)[2][2], const Sources& from, float root) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float weights[2] = {low_of(norm[half]), high_of(norm[half])};
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        if (from.offset != 0.f) weights[each] = __fadd_rn(weights[each], from.offset);
        x[half][each] = __fmul_rn(__fmul_rn(x[half][each], weights[each]), root);
      }
    }
  }

  __device__ __forceinline__ void turn(float (&x)[2][2]) const {
#pragma unroll
    for (int each = 0; each < 2; ++each) {
      const float low = x[0][each], high = x[1][each], by = each ? cosine.y : cosine.x, aside = each ? sine.y : sine.x;
      x[0][each] = __fmaf_rn(low, by, __fmul_rn(high, aside));
      x[1][each] = __fmaf_rn(high, by, __fsub_rn(0.f, __fmul_rn(low, aside)));
    }
  }

  static __device__ __forceinline__ void round(const float (&x)[2][2], unsigned (&pairs)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) pairs[half] = pair_of(x[half][0], x[half][1]);
  }
};
