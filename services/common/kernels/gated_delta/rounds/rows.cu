// Rows of a block as the recurrence takes them: convolved, activated and normalised. A warp makes queries, keys or values
// of a row at a time, a lane four neighbours of them.

struct Span {
  const half_t* into;  // of the sequence
  half_t* ring;        // of its slot
  int length, ring_rows, features, kept;
  int queries, keys, values, gates, gates_apart;  // where the head's begin in a row
  bool keeps_keys;                                // the first head of those that share queries and keys
  float scale;

  // Where a row begins, `place` being its position modulo the ring's rows, or one turn off.
  __device__ const half_t* row(int position, int place) const {
    const bool fresh = position >= length;
    return (fresh ? into : ring) + (fresh ? (position - length) * features : turned(place) * kept);
  }
  __device__ half_t* kept_row(int place) const { return ring + turned(place) * kept; }
  __device__ int turned(int place) const {
    return place + (place < 0 ? ring_rows : place >= ring_rows ? -ring_rows : 0);
  }
  __device__ int channel(int part) const { return part == 0 ? queries : part == 1 ? keys : values; }
};

struct Raw {
  uint2 taps[TAPS];
};

__device__ __forceinline__ int64 sum_of_warp(int64 x) {
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}

__device__ __forceinline__ Raw load_raw(const Span& span, int start, int place, int row, int part, int lane) {
  Raw raw;
  const int column = span.channel(part) + lane * 4;
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) {
    const int ahead = row + tap + 1 - TAPS;
    const half_t* from = span.row(start + ahead, place + ahead) + column;
    raw.taps[tap] = start + ahead >= 0 ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
  }
  return raw;
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
  *reinterpret_cast<float4*>(&block.query[row][lane * 4]) = make_float4(0.f, 0.f, 0.f, 0.f);
}

__device__ __forceinline__ void make_part(Block& block, const Memory& memory, const Span& span, const Raw& raw, int row,
                                          int part, int lane) {
  const int column = lane * 4;
  float x[4] = {0.f, 0.f, 0.f, 0.f}, nothing = 0.f;
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) {
    const float4 weight = *reinterpret_cast<const float4*>(&memory.conv[tap][part][column]);
    x[0] = __fmaf_rn(low_of(raw.taps[tap].x), weight.x, x[0]);
    x[1] = __fmaf_rn(high_of(raw.taps[tap].x), weight.y, x[1]);
    x[2] = __fmaf_rn(low_of(raw.taps[tap].y), weight.z, x[2]);
    x[3] = __fmaf_rn(high_of(raw.taps[tap].y), weight.w, x[3]);
  }
#pragma unroll
  for (int each = 0; each < 4; ++each) {
    x[each] = silu(x[each]);
    nothing = __fmaf_rn(x[each], 0.f, nothing);
  }
  const bool broken = __any_sync(~0u, nothing != 0.f);
  if (part < 2) {
    const int64 units = sum_of_warp(square(x[0]) + square(x[1]) + square(x[2]) + square(x[3]));
    const float by = __fmul_rn(root(__fadd_rn(from_squares(units), 1e-6f)), part ? 1.f : span.scale);
#pragma unroll
    for (int each = 0; each < 4; ++each) x[each] = __fmul_rn(fminf(fmaxf(x[each], -LARGEST), LARGEST), by);
    store_halves(part ? block.keys : block.queries, row, column, x, TILE_SCALE);
    if (part == 0) *reinterpret_cast<float4*>(&block.query[row][column]) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
    float most = 0.f, up, down;
#pragma unroll
    for (int each = 0; each < 4; ++each) {
      if (broken && !finite(x[each])) x[each] = 0.f;
      most = fmaxf(most, fabsf(x[each]));
    }
    // Bits of numbers that are not negative are in their order.
    scales(__uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most))), up, down);
    store_halves(block.values, row, column, x, up);
    if (lane == 0) block.down[row] = down;
  }
  if (lane == 0) block.ill[part][row] = broken ? nan() : 0.f;
}

// A lane for each row: its rate and its decay; a row of the span is kept in the ring, too.
__device__ __forceinline__ void make_gates(Memory& memory, const Span& span, float decay, float bias, int start, int place,
                                           int real, int count, int lane) {
  if (lane >= count * BLOCK) return;
  Block& block = memory.blocks[lane / BLOCK];
  const int row = lane % BLOCK;
  float beta = 0.f, ill = 0.f;
  int64 units = 0;
  if (lane < real) {
    const half_t* gate = span.row(start + lane, place + lane) + span.gates;
    const half_t raw_logit = gate[0], raw_slope = gate[span.gates_apart];
    if (start + lane >= span.length) {
      half_t* kept = span.kept_row(place + lane) + span.gates;
      kept[0] = raw_logit, kept[span.gates_apart] = raw_slope;
    }
    const float logit = wide(raw_logit), g = __fmul_rn(softplus(__fadd_rn(wide(raw_slope), bias)), decay);
    if (finite(logit) && finite(g))
      beta = sigmoid(logit), units = decay_units(g);
    else
      ill = nan();
  } else {
    block.ill[0][row] = block.ill[1][row] = block.ill[2][row] = 0.f, block.down[row] = 0.f;
  }
  block.beta[row] = beta, block.units[row] = units, block.ill[3][row] = ill;
}
