// A row's experts, chosen by a warp as `choice.chosen_experts` chooses them, operation by operation.
//
// `build.cuh` defines COUNT, TOP_K, RENORM and RATED.

#pragma once

#include "build.cuh"
#include "approximate.cuh"
#include "linear/cuda/left.cuh"

constexpr int OWN = (COUNT + 31) / 32;  // experts of a lane, which are neighbours

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

// The greatest of all lanes' numbers; one that is none counts as least.
__device__ __forceinline__ float greatest(float x) {
  const int bits = __float_as_int(x), ordered = bits ^ (bits >> 31 & 0x7FFFFFFF);
  const int best = __reduce_max_sync(~0u, x == x ? ordered : (int)0x80000000);
  return __int_as_float(best ^ (best >> 31 & 0x7FFFFFFF));
}

// The sum of all lanes' numbers, by pieces that fit.
__device__ __forceinline__ long long added_up(long long x) {
  const long long low = __reduce_add_sync(~0u, (int)(x & 0xFFFFF)), middle = __reduce_add_sync(~0u, (int)(x >> 20 & 0xFFFFF));
  return ((unsigned long long)__reduce_add_sync(~0u, (int)(x >> 40)) << 40) + (middle << 20) + low;
}

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
      const int expert = lane * OWN + own;
      weight[own] = expert < COUNT ? number(gates[expert]) : -infinite();
      best = fmaxf(best, weight[own]);
    }
    best = greatest(best);
    long long sum = 0;
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      weight[own] = exponential(__fsub_rn(weight[own], best));
      sum += __float2ll_rz(__fadd_rn(__fmul_rn(weight[own], 1099511627776.f), 0.5f));
    }
    const float total = __fmul_rn(__ll2float_rn(added_up(sum)), 9.094947017729282e-13f);
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const bool inside = lane * OWN + own < COUNT;
      const float share = div_full(weight[own], total);
      odd |= inside && share != share;
      key[own] = inside ? (share > 0.f ? __float_as_int(share) : 0) : -1;
      weight[own] = __int_as_float(key[own]);
    }
  }

  __device__ __forceinline__ void rate(const unsigned short* gates, const RowRating& rating, int lane) {
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const int expert = lane * OWN + own;
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

  // The greatest key, of equal ones the lowest expert, which is taken; its weight goes to all lanes. The next one waits for its
  // lane alone.
  __device__ __forceinline__ int take(int lane, float& taken) {
    int most = key[0], one = 0;
#pragma unroll
    for (int own = 1; own < OWN; ++own) most = max(most, key[own]);
    const int best = __reduce_max_sync(~0u, most);
    const int leader = __ffs(__ballot_sync(~0u, most == best)) - 1;
    float mine = 0.f;
    bool open = lane == leader;
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const bool hit = open && key[own] == best;
      open &= !hit;
      one = hit ? lane * OWN + own : one;
      mine = hit ? weight[own] : mine;
      key[own] = hit ? (RATED ? -0x7FFFFFFF : -1) : key[own];
    }
    taken = RATED ? __shfl_sync(~0u, mine, leader) : __int_as_float(best);
    return __shfl_sync(~0u, one, leader);
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
