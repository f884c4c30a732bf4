// Rows as the recurrence takes them, neighbours side by side so that no row's steps wait for one another's. What a row of
// `rows.cu` goes through, in that order.

// What a part is convolved with; a lane has four channels.
struct Weights {
  float4 taps[TAPS];

  __device__ __forceinline__ Weights(const Pair& pair, int part, int lane) {
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) taps[tap] = *reinterpret_cast<const float4*>(&pair.conv[tap][part][lane * 4]);
  }
};

// Squares of a row with a number that is limited, or is none, have at least this sum.
constexpr int64 LARGEST_UNITS = (int64)(LARGEST * LARGEST) << 30;

// The larger one; no number where one of them is none.
__device__ __forceinline__ float larger(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}

// Convolves and activates rows from `row` on; those of the span are kept in the ring as they were projected.
template <int COUNT>
__device__ __forceinline__ void convolve(Pair& pair, const Span& span, const Place& place, const Weights& weights, int part,
                                         int row, int until, int lane, float (&x)[COUNT][4], bool (&broken)[COUNT]) {
  uint2 raw[COUNT + TAPS - 1];
#pragma unroll
  for (int each = 0; each < COUNT + TAPS - 1; ++each)
    raw[each] = *reinterpret_cast<const uint2*>(&pair.raw[part][row + each][lane * 4]);
  const bool keeps = part >= 2 || span.keeps_keys;
  const int column = span.channel(part) + lane * 4;
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    if (keeps && row + own < until && place.start + row + own >= span.length)
      *reinterpret_cast<uint2*>(span.kept_row(place.turn + row + own) + column) = raw[TAPS - 1 + own];
    x[own][0] = x[own][1] = x[own][2] = x[own][3] = 0.f;
  }
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) {
#pragma unroll
    for (int own = 0; own < COUNT; ++own) add_tap(x[own], raw[tap + own], weights.taps[tap]);
  }
#pragma unroll
  for (int own = 0; own < COUNT; ++own) broken[own] = activate(x[own]);
}

// Rows of queries (part 0) or keys from `row` up to `until`, which are no more than `COUNT`.
template <int COUNT>
__device__ __forceinline__ void make_directions(Pair& pair, const Span& span, const Place& place, const Weights& weights,
                                                int part, int turn, int row, int until, int lane) {
  Block block(pair, 0, turn);
  float x[COUNT][4];
  bool broken[COUNT];
  convolve<COUNT>(pair, span, place, weights, part, row, until, lane, x, broken);
  int64 units[COUNT];
  uint2 high[COUNT], low[COUNT];
  bool large = false;
#pragma unroll
  for (int own = 0; own < COUNT; ++own) units[own] = squares(x[own]);
#pragma unroll
  for (int own = 0; own < COUNT; ++own) units[own] = sum_of_warp(units[own]), large |= units[own] >= LARGEST_UNITS;
  if (large) {
#pragma unroll
    for (int own = 0; own < COUNT; ++own) broken[own] = __any_sync(~0u, broken[own]), limit(x[own], 1.f);
  }
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    const float by = __fmul_rn(by_length(units[own]), part ? 1.f : span.scale);
#pragma unroll
    for (int each = 0; each < 4; ++each) x[own][each] = __fmul_rn(x[own][each], by);
    take_halves(x[own], TILE_SCALE, high[own], low[own]);
  }
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    if (row + own >= until) break;
    put_halves(part ? block.keys : block.queries, row + own, lane * 4, high[own], low[own]);
    if (part == 0)
      *reinterpret_cast<float4*>(&block.query[row + own][lane * 4]) = make_float4(x[own][0], x[own][1], x[own][2], x[own][3]);
    if (lane == 0) block.ill[part][row + own] = large && broken[own] ? nan() : 0.f;
  }
}

// Rows of a head's values (part 2, or 3 of the second head), likewise.
template <int COUNT>
__device__ __forceinline__ void make_values(Pair& pair, const Span& span, const Place& place, const Weights& weights, int part,
                                            int turn, int row, int until, int lane) {
  Block block(pair, part - 2, turn);
  float x[COUNT][4], down[COUNT];
  bool broken[COUNT];
  convolve<COUNT>(pair, span, place, weights, part, row, until, lane, x, broken);
  uint2 high[COUNT], low[COUNT];
  float most[COUNT];
  bool ill = false;
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    most[own] = larger(larger(fabsf(x[own][0]), fabsf(x[own][1])), larger(fabsf(x[own][2]), fabsf(x[own][3])));
    // Bits of numbers that are not negative are in their order, and behind them those of what is none.
    most[own] = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most[own])));
    broken[own] = !finite(most[own]), ill |= broken[own];
  }
  if (ill) {
#pragma unroll
    for (int own = 0; own < COUNT; ++own) {
      const float own_most = largest(x[own], broken[own]);
      most[own] = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(own_most)));
    }
  }
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    float up;
    scales(most[own], up, down[own]);
    take_halves(x[own], up, high[own], low[own]);
  }
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    if (row + own >= until) break;
    put_halves(block.values, row + own, lane * 4, high[own], low[own]);
    if (lane == 0) block.down[row + own] = down[own], block.ill[2][row + own] = broken[own] ? nan() : 0.f;
  }
}
