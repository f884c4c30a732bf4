// A split's part: its running softmax, operation by operation that of `softmax.py`.
//
// Keys and values are the left operand of products, of which a matrix instruction takes 16 rows; queries are eight at most. So a lane
// has two queries, and of their scores every eighth position, of their sums every eighth column.

#pragma once

#include "bfloat16.cuh"
#include "span_attention/alone/queries.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/decode/instructions.cuh"
#include "span_attention/decode/sizes.cuh"
#include "span_attention/decode/units.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/turn.cuh"

__device__ __forceinline__ void score(float (&scores)[TOKEN_STEPS][4], const RowQueries& queries, const Unit& keys, int lane) {
#pragma unroll
  for (int number = 0; number < TOKEN_STEPS * 4; ++number) scores[number / 4][number % 4] = 0.f;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
#pragma unroll
    for (int each = 0; each < TOKEN_STEPS; ++each) {
      unsigned found[4];
      keys.keys(found, each * 16, step * 2, lane);
      multiply(scores[each], found, queries.pairs[step]);
    }
  }
}

// Positions behind the last are hidden.
__device__ __forceinline__ void hide(float (&scores)[TOKEN_STEPS][4], int first, int last, int lane) {
#pragma unroll
  for (int each = 0; each < TOKEN_STEPS * 2; ++each) {
    if (first + each * 8 + lane / 4 <= last) continue;
    scores[each / 2][each % 2 * 2] = scores[each / 2][each % 2 * 2 + 1] = -INFINITY_F;
  }
}

struct WarpPart {
  float best[2] = {NOTHING, NOTHING}, mass[4] = {}, sum[COLUMN_STEPS][4] = {};

  // Fades for a tile's scores, with which a part may begin, and returns their weights.
  __device__ __forceinline__ void weigh(const float (&scores)[TOKEN_STEPS][4], unsigned (&weights)[TOKEN_STEPS][2], bool begins,
                                        float scale) {
    float offset[2];
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      float most = scores[0][query];
#pragma unroll
      for (int each = 1; each < TOKEN_STEPS * 2; ++each) most = fmaxf(most, scores[each / 2][each % 2 * 2 + query]);
#pragma unroll
      for (int apart = 4; apart < WARP; apart *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, apart));
      const float before = begins ? NOTHING : best[query];  // what the part before left fades to nothing
      best[query] = fmaxf(before, upwards(__fmul_rn(most, scale))), offset[query] = __fsub_rn(0.f, best[query]);
      const float fade = fade_of(__fsub_rn(before, best[query]));
      mass[query] = __fmul_rn(mass[query], fade);
#pragma unroll
      for (int each = 0; each < COLUMN_STEPS * 2; ++each) {
        float& own = sum[each / 2][each % 2 * 2 + query];
        own = __fmul_rn(own, fade);
      }
    }
#pragma unroll
    for (int each = 0; each < TOKEN_STEPS * 2; ++each)
      weights[each / 2][each % 2] = turned(pair_of(power(__fmaf_rn(scores[each / 2][each % 2 * 2], scale, offset[0])),
                                                   power(__fmaf_rn(scores[each / 2][each % 2 * 2 + 1], scale, offset[1]))));
  }

  __device__ __forceinline__ void add(const unsigned (&weights)[TOKEN_STEPS][2], const Unit& values, int lane) {
    const unsigned ones[4] = {ONES, ONES, ONES, ONES};
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step) {
#pragma unroll
      for (int each = 0; each < COLUMN_STEPS; ++each) {
        unsigned found[4];
        values.values(found, step * 16, each * 2, lane);
        multiply(sum[each], found, weights[step]);
      }
      multiply(mass, ones, weights[step]);
    }
  }
};

// All splits up to one.
struct Whole {
  float best[2] = {NOTHING, NOTHING}, mass[2] = {}, sum[COLUMN_STEPS][4] = {};

  __device__ __forceinline__ void fold(const WarpPart& next) {
#pragma unroll
    for (int query = 0; query < 2; ++query) {
      const float top = fmaxf(best[query], next.best[query]);
      const float fade = fade_of(__fsub_rn(best[query], top)), by = fade_of(__fsub_rn(next.best[query], top));
      mass[query] = __fmaf_rn(next.mass[query], by, __fmul_rn(mass[query], fade));
#pragma unroll
      for (int each = 0; each < COLUMN_STEPS * 2; ++each) {
        float& own = sum[each / 2][each % 2 * 2 + query];
        own = __fmaf_rn(next.sum[each / 2][each % 2 * 2 + query], by, __fmul_rn(own, fade));
      }
      best[query] = top;
    }
  }

  // Lanes swap until each has eights of columns of one query.
  __device__ __forceinline__ void store(unsigned short* out, bool there, int lane) const {
    const float first = mass[0] > 0.f ? mass[0] : 1.f, second = mass[1] > 0.f ? mass[1] : 1.f;
#pragma unroll
    for (int four = 0; four < COLUMN_STEPS / 2; ++four) {
      unsigned pairs[4];
#pragma unroll
      for (int each = 0; each < 4; ++each) {
        const float* const own = sum[four * 2 + each / 2] + each % 2 * 2;
        pairs[each] = turned(pair_of(quotient(own[0], first), quotient(own[1], second)));
      }
      turn(pairs, lane);
      if (there)
        *reinterpret_cast<uint4*>(out + (four * 4 + lane % 4) * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
};
