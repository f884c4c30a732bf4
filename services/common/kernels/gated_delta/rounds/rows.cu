// Rows of a block as the recurrence takes them: convolved, activated and normalised. A warp makes queries, keys or values
// of a row at a time, a lane four neighbours of them.

struct Span {
  const half_t* into;  // of the sequence
  half_t* ring;        // of its slot
  int length, ring_rows, features, kept;
  int queries, keys, values, gates, gates_apart, head;  // where the head's begin in a row
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

// What one row, or two neighbours, are made of.
template <int COUNT>
struct Raw {
  uint2 rows[TAPS + COUNT - 1];
};

__device__ __forceinline__ int64 sum_of_warp(int64 x) {
#pragma unroll
  for (int apart = WARP / 2; apart; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}

template <int COUNT>
__device__ __forceinline__ Raw<COUNT> load_raw(const Span& span, int start, int place, int row, int end, int part,
                                               int lane) {
  Raw<COUNT> raw;
  const int column = span.channel(part) + lane * 4;
  int at = start + row + 1 - TAPS, turn = span.turned(place + row + 1 - TAPS);
#pragma unroll
  for (int each = 0; each < TAPS + COUNT - 1; ++each) {
    const bool fresh = at >= span.length, there = at >= 0 && (each < TAPS || row + 1 < end);
    const half_t* from = (fresh ? span.into : span.ring) + ((fresh ? (at - span.length) * span.features : turn * span.kept) + column);
    raw.rows[each] = there ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
    ++at;
    turn = turn + 1 == span.ring_rows ? 0 : turn + 1;
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

__device__ __forceinline__ void add_tap(float (&x)[4], uint2 raw, float4 weight) {
  x[0] = __fmaf_rn(low_of(raw.x), weight.x, x[0]);
  x[1] = __fmaf_rn(high_of(raw.x), weight.y, x[1]);
  x[2] = __fmaf_rn(low_of(raw.y), weight.z, x[2]);
  x[3] = __fmaf_rn(high_of(raw.y), weight.w, x[3]);
}

// Stores four neighbours of a convolved row, of its queries or keys (divided by their length) or of its values.
__device__ __forceinline__ void store_part(Block& block, float (&x)[4], int64 units, float scale, bool broken, int row,
                                           int part, int lane) {
  const int column = lane * 4;
  if (part < 2) {
    const float by = __fmul_rn(root(__fadd_rn(from_squares(units), 1e-6f)), part ? 1.f : scale);
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

template <int COUNT>
__device__ __forceinline__ void make_part(Memory& memory, const Span& span, const Raw<COUNT>& raw, int row, int end,
                                          int part, int lane) {
  float x[COUNT][4];
#pragma unroll
  for (int own = 0; own < COUNT; ++own) x[own][0] = x[own][1] = x[own][2] = x[own][3] = 0.f;
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) {
    const float4 weight = *reinterpret_cast<const float4*>(&memory.conv[tap][part][lane * 4]);
#pragma unroll
    for (int own = 0; own < COUNT; ++own) add_tap(x[own], raw.rows[tap + own], weight);
  }
  int64 units[COUNT];
  bool broken[COUNT];
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    float nothing = 0.f;
    units[own] = 0;
#pragma unroll
    for (int each = 0; each < 4; ++each) {
      x[own][each] = silu(x[own][each]);
      nothing = __fmaf_rn(x[own][each], 0.f, nothing);
    }
    broken[own] = nothing != 0.f;
  }
  if (part < 2) {
#pragma unroll
    for (int own = 0; own < COUNT; ++own)
      units[own] = square(x[own][0]) + square(x[own][1]) + square(x[own][2]) + square(x[own][3]);
    // Both rows' sums side by side: neither waits for the other.
#pragma unroll
    for (int apart = WARP / 2; apart; apart /= 2) {
#pragma unroll
      for (int own = 0; own < COUNT; ++own) units[own] += __shfl_xor_sync(~0u, units[own], apart);
    }
  }
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    broken[own] = __any_sync(~0u, broken[own]);
    if (row + own < end)
      store_part(memory.blocks[(row + own) / BLOCK], x[own], units[own], span.scale, broken[own], (row + own) % BLOCK, part, lane);
  }
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

// Rows of which a query or a key is no number count as absent.
__device__ __forceinline__ void clear_broken(Memory& memory, int count, int warp, int lane) {
  const Block& own = memory.blocks[lane / BLOCK % count];
  const unsigned broken = __ballot_sync(~0u, own.ill[0][lane % BLOCK] + own.ill[1][lane % BLOCK] != 0.f);
  if (!broken) return;
  for (int row = warp; row < count * BLOCK; row += WARPS)
    if (broken >> row & 1) clear_row(memory.blocks[row / BLOCK], row % BLOCK, lane);
  __syncthreads();
}
