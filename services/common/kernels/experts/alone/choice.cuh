// A row's experts, chosen by a warp as `choice.chosen_experts` chooses them, operation by operation.

#pragma once

#include "experts/alone/sizes.cuh"
#include "approximate.cuh"
#include "linear/cuda/left.cuh"

constexpr int OWN = (COUNT + 31) / 32;  // experts of a lane: each 32nd

__device__ __forceinline__ float exponential(float x) { return exp2_approx(__fmul_rn(x, 1.44269504f)); }

struct RowChoice {
  int expert;    // of a lane's rank
  float weight;  // likewise
};

// How a row's experts are rated, beyond a softmax of their gates: `cap` and `factor` are none where they are 0 and 1.
struct RowRating {
  const unsigned short* bias;
  float cap, factor;
};

__device__ __forceinline__ float infinite() { return __int_as_float(0x7F800000); }

// A lane's experts: whole numbers in the order that they are taken in, and what each weighs.
struct LaneKeys {
  int key[OWN];
  float weight[OWN];
  bool odd = false;  // one is no number

  // Shares of a softmax, whose sum is one of whole numbers. A row with an infinite number may have some below zero.
  __device__ __forceinline__ void share(const unsigned short* gates, int lane) {
    float best = -infinite();
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      weight[own] = own * 32 + lane < COUNT ? number(gates[own * 32 + lane]) : -infinite();
      best = fmaxf(best, weight[own]);
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, apart));
    long long sum = 0;
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      weight[own] = exponential(__fsub_rn(weight[own], best));
      sum += __float2ll_rz(__fadd_rn(__fmul_rn(weight[own], 1099511627776.f), 0.5f));
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    const float total = __fmul_rn(__ll2float_rn(sum), 9.094947017729282e-13f);
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const bool inside = own * 32 + lane < COUNT;
      const float share = div_full(weight[own], total);
      odd |= inside && share != share;
      key[own] = inside ? (share > 0.f ? __float_as_int(share) : 0) : -1;
      weight[own] = __int_as_float(key[own]);
    }
  }

  __device__ __forceinline__ void rate(const unsigned short* gates, const RowRating& rating, int lane) {
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const int expert = own * 32 + lane;
      const bool inside = expert < COUNT;
      float logit = inside ? number(gates[expert]) : -infinite();
      if (rating.cap > 0.f) {
        const float apart = __fadd_rn(exponential(__fmul_rn(logit, __fdiv_rn(2.f, rating.cap))), 1.f);
        logit = __fmul_rn(rating.cap, __fsub_rn(1.f, div_full(2.f, apart)));
      }
      const float rate = div_full(1.f, __fadd_rn(exponential(__fsub_rn(0.f, logit)), 1.f));
      const float asked = __fadd_rn(rate, inside ? number(rating.bias[expert]) : 0.f);
      const bool there = asked == asked;
      odd |= inside && !there;
      const int bits = __float_as_int(__fadd_rn(there ? asked : 0.f, 0.f));
      key[own] = inside ? bits ^ (bits >> 31 & 0x7FFFFFFF) : -0x7FFFFFFF;
      weight[own] = there ? rate : 0.f;
    }
  }

  // The greatest key, of equal ones the lowest expert, which is taken; its weight goes to all lanes.
  __device__ __forceinline__ int take(int lane, float& taken) {
    int best = key[0], one = COUNT;
    float mine = 0.f;
#pragma unroll
    for (int own = 1; own < OWN; ++own) best = max(best, key[own]);
    best = __reduce_max_sync(~0u, best);
#pragma unroll
    for (int own = 0; own < OWN; ++own) one = key[own] == best ? min(one, own * 32 + lane) : one;
    one = __reduce_min_sync(~0u, one);
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const bool hit = own * 32 + lane == one;
      mine = hit ? weight[own] : mine;
      key[own] = hit ? (RATED ? -0x7FFFFFFF : -1) : key[own];
    }
    taken = RATED ? __shfl_sync(~0u, mine, one % 32) : __int_as_float(best);
    return one;
  }
};

// The rank of a lane is its number.
__device__ __forceinline__ RowChoice choose(const unsigned short* gates, const RowRating& rating, int lane) {
  LaneKeys keys;
  if constexpr (RATED)
    keys.rate(gates, rating, lane);
  else
    keys.share(gates, lane);
  const bool odd = __any_sync(~0u, keys.odd);
  RowChoice mine{0, 0.f};
  float sum = 0.f;
#pragma unroll
  for (int rank = 0; rank < TOP_K; ++rank) {
    float weight;
    const int one = keys.take(lane, weight);
    if (lane == rank) mine = {one, weight};
    sum = __fadd_rn(sum, weight);
  }
  if (RENORM || RATED) mine.weight = div_full(mine.weight, sum);
  if (odd) mine.weight = __int_as_float(0x7FC00000);
  if (rating.factor != 1.f) mine.weight = __fmul_rn(mine.weight, rating.factor);
  return mine;
}
