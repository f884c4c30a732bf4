// Rows of a block as the recurrence takes them: convolved, activated and normalised, by a warp each.

struct Span {
  const half_t* into;
  half_t* ring;
  const float *decay, *bias;
  int sequence, slot, length, reach, width, ring_rows, k_heads, heads, features, kept;
  float scale;

  // Where a row at a position begins: in the ring below the length, in the span from there on.
  __device__ const half_t* row(int position) const {
    const size_t fresh = ((size_t)sequence * width + (position - length)) * features;
    return position >= length ? into + fresh : kept_row(position);
  }
  __device__ half_t* kept_row(int position) const {
    return ring + ((size_t)slot * ring_rows + position % ring_rows) * kept;
  }
};

__device__ __forceinline__ int64 sum_of_warp(int64 x) {
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}

__device__ __forceinline__ float most_of_warp(float x) {
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(x)));  // of numbers that are not negative
}

// Stores four neighbours of a row as halves.
__device__ __forceinline__ void store_halves(unsigned char (&tile)[2][2][ROWS_BYTES], int row, int column,
                                             const float (&x)[4], float up) {
  uint2 high, low;
  halves(__fmul_rn(x[0], up), __fmul_rn(x[1], up), high.x, low.x);
  halves(__fmul_rn(x[2], up), __fmul_rn(x[3], up), high.y, low.y);
  const unsigned at = eight_at(ROWS_BYTES, row, column) + column % 8 * 2;
  *reinterpret_cast<uint2*>(&tile[0][0][0] + at) = high;
  *reinterpret_cast<uint2*>(&tile[1][0][0] + at) = low;
}

__device__ __forceinline__ void clear_row(Block& block, int row, int lane) {
  const float none[4] = {0.f, 0.f, 0.f, 0.f};
  store_halves(block.keys, row, lane * 4, none, 1.f);
  store_halves(block.queries, row, lane * 4, none, 1.f);
  store_halves(block.values, row, lane * 4, none, 1.f);
  *reinterpret_cast<float4*>(&block.query[row][lane * 4]) = make_float4(0.f, 0.f, 0.f, 0.f);
  if (lane == 0) block.beta[row] = 0.f, block.units[row] = 0, block.ill[row] = 0.f, block.down[row] = 0.f;
}

// Makes one row; a row of the span is kept in the ring, too.
template <bool FRESH>
__device__ __forceinline__ void make_row(Block& block, const Memory& memory, const Span& span, int head, int position, int row,
                                         int lane) {
  const int group = span.heads / span.k_heads, k_head = head / group, column = lane * 4;
  const int first[3] = {k_head * DIM + column, (span.k_heads + k_head) * DIM + column,
                        2 * span.k_heads * DIM + head * DIM + column};
  uint2 raw[TAPS][3];
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) {
    const int at = position + tap + 1 - TAPS;
    const half_t* from = span.row(at);
#pragma unroll
    for (int part = 0; part < 3; ++part)
      raw[tap][part] = at >= 0 ? *reinterpret_cast<const uint2*>(from + first[part]) : make_uint2(0, 0);
  }
  const half_t* gate = span.row(position) + span.kept - 2 * span.heads + head;
  const half_t raw_logit = gate[0], raw_slope = gate[span.heads];
  if constexpr (FRESH) {
    half_t* kept = span.kept_row(position);
    if (head % group == 0) {
      *reinterpret_cast<uint2*>(kept + first[0]) = raw[TAPS - 1][0];
      *reinterpret_cast<uint2*>(kept + first[1]) = raw[TAPS - 1][1];
    }
    *reinterpret_cast<uint2*>(kept + first[2]) = raw[TAPS - 1][2];
    if (lane == 0) {
      kept += span.kept - 2 * span.heads + head;
      kept[0] = raw_logit, kept[span.heads] = raw_slope;
    }
  }
  float x[3][4];
#pragma unroll
  for (int part = 0; part < 3; ++part) {
#pragma unroll
    for (int each = 0; each < 4; ++each) x[part][each] = 0.f;
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap) {
      const float4 weight = *reinterpret_cast<const float4*>(&memory.conv[tap][part][column]);
      x[part][0] = __fmaf_rn(low_of(raw[tap][part].x), weight.x, x[part][0]);
      x[part][1] = __fmaf_rn(high_of(raw[tap][part].x), weight.y, x[part][1]);
      x[part][2] = __fmaf_rn(low_of(raw[tap][part].y), weight.z, x[part][2]);
      x[part][3] = __fmaf_rn(high_of(raw[tap][part].y), weight.w, x[part][3]);
    }
#pragma unroll
    for (int each = 0; each < 4; ++each) x[part][each] = silu(x[part][each]);
  }
  bool broken = false, bad = false;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    int64 units = 0;
#pragma unroll
    for (int each = 0; each < 4; ++each) units += square(x[part][each]);
    const float by = __fmul_rn(root(__fadd_rn(from_squares(sum_of_warp(units)), 1e-6f)), part ? 1.f : span.scale);
#pragma unroll
    for (int each = 0; each < 4; ++each) {
      x[part][each] = __fmul_rn(bounded(x[part][each]), by);
      broken |= !finite(x[part][each]);
    }
  }
  broken = __any_sync(~0u, broken);
  float most = 0.f, up, down;
#pragma unroll
  for (int each = 0; each < 4; ++each) {
    if (broken) x[0][each] = 0.f, x[1][each] = 0.f;
    if (!finite(x[2][each])) x[2][each] = 0.f, bad = true;
    most = fmaxf(most, fabsf(x[2][each]));
  }
  bad = __any_sync(~0u, bad);
  scales(most_of_warp(most), up, down);
  store_halves(block.queries, row, column, x[0], TILE_SCALE);
  store_halves(block.keys, row, column, x[1], TILE_SCALE);
  store_halves(block.values, row, column, x[2], up);
  *reinterpret_cast<float4*>(&block.query[row][column]) = make_float4(x[0][0], x[0][1], x[0][2], x[0][3]);
  const float logit = wide(raw_logit), g = __fmul_rn(softplus(__fadd_rn(wide(raw_slope), span.bias[head])), span.decay[head]);
  const bool sound = finite(logit) && finite(g);
  if (lane == 0) {
    block.beta[row] = sound ? sigmoid(logit) : 0.f;
    block.units[row] = sound ? decay_units(g) : 0;
    block.ill[row] = sound && !broken && !bad ? 0.f : nan();
    block.down[row] = down;
  }
}
