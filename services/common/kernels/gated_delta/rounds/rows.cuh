// Rows of a block as the recurrence takes them: convolved, activated and normalised. A warp makes queries, keys or values
// of a row at a time, a lane four neighbours of them.

#pragma once

#include "bfloat16.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"

struct DeltaSpan {
  const half_t* into;  // of the sequence
  half_t* ring;        // of its slot
  int length, ring_rows, features, kept;
  int queries, keys, values, gates, gates_apart, head;  // where the head's begin in a row
  bool keeps_keys;                                      // the first head of those that share queries and keys
  float scale;

  // Of a row the queries come first, keys and values follow, and both gates of all heads are the last that is kept.
  __device__ __forceinline__ void take_heads(int k_heads, int heads, int k_head, int of_head) {
    queries = k_head * DIM, keys = (k_heads + k_head) * DIM, values = (2 * k_heads + of_head) * DIM;
    gates = kept - 2 * heads + of_head, gates_apart = heads, head = of_head;
  }

  // Where a row begins, `place` being its position modulo the ring's rows, or one turn off.
  __device__ const half_t* row(int position, int place) const {
    const bool fresh = position >= length;
    return (fresh ? into : ring) + (fresh ? (position - length) * features : turned(place) * kept);
  }
  __device__ half_t* kept_row(int place) const { return ring + turned(place) * kept; }
  __device__ int turned(int place) const { return place + (place < 0 ? ring_rows : place >= ring_rows ? -ring_rows : 0); }
  // Of queries, of keys, of values, and of those of the heads behind.
  __device__ int channel(int part) const { return part == 0 ? queries : part == 1 ? keys : values + (part - 2) * DIM; }
};

// What one row, or two neighbours, are made of.
template <int COUNT>
struct Raw {
  uint2 rows[TAPS + COUNT - 1];
};

// Of numbers from 0 up to 2^57, in parts whose sums have 32 bits: a sum of the whole warp is one instruction each.
__device__ __forceinline__ int64 sum_of_warp(int64 x) {
  constexpr int BITS = 26;
  const unsigned low = __reduce_add_sync(~0u, (unsigned)x & ((1u << BITS) - 1));
  const unsigned middle = __reduce_add_sync(~0u, (unsigned)(x >> BITS) & ((1u << BITS) - 1));
  const unsigned high = __reduce_add_sync(~0u, (unsigned)(x >> 2 * BITS));
  return ((int64)high << 2 * BITS) + ((int64)middle << BITS) + low;
}

template <int COUNT>
__device__ __forceinline__ Raw<COUNT> load_raw(const DeltaSpan& span, int start, int place, int row, int end, int part,
                                               int lane) {
  Raw<COUNT> raw;
  const int column = span.channel(part) + lane * 4, first = start + row + 1 - TAPS;
  const int turn = span.turned(place + row + 1 - TAPS), ahead = first - span.length;
  // Rows lie side by side, up to the ring's end and to the span's beginning.
  const half_t* from = (ahead >= 0 ? span.into + ahead * span.features : span.ring + turn * span.kept) + column;
#pragma unroll
  for (int each = 0; each < TAPS + COUNT - 1; ++each) {
    const bool there = first + each >= 0 && (each < TAPS || row + 1 < end);
    raw.rows[each] = there ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
    from += ahead + each >= 0                   ? span.features
            : turn + each + 1 == span.ring_rows ? (1 - span.ring_rows) * span.kept
                                                : span.kept;
    if (ahead + each + 1 == 0) from = span.into + column;
  }
  return raw;
}

// Where what is made of a row goes: into this CTA's memory alone.
struct Here {
  template <typename T>
  __device__ __forceinline__ void all(T& to, T what) const {
    to = what;
  }
  // What only the CTA with this column of values needs.
  template <typename T>
  __device__ __forceinline__ void one(T& to, T what, int) const {
    to = what;
  }
  __device__ __forceinline__ void count(int, int) const {}
};

// Four neighbours of a row as halves.
__device__ __forceinline__ void take_halves(const float (&x)[4], float up, uint2& high, uint2& low) {
  halves(__fmul_rn(x[0], up), __fmul_rn(x[1], up), high.x, low.x);
  halves(__fmul_rn(x[2], up), __fmul_rn(x[3], up), high.y, low.y);
}

__device__ __forceinline__ void put_halves(unsigned char (&tile)[2][2][ROWS_BYTES], int row, int column, uint2 high,
                                           uint2 low) {
  const unsigned at = eight_at(ROWS_BYTES, row, column) + column % 8 * 2;
  *reinterpret_cast<uint2*>(&tile[0][0][0] + at) = high;
  *reinterpret_cast<uint2*>(&tile[1][0][0] + at) = low;
}

__device__ __forceinline__ void store_halves(unsigned char (&tile)[2][2][ROWS_BYTES], int row, int column, const float (&x)[4],
                                             float up) {
  uint2 high, low;
  take_halves(x, up, high, low);
  put_halves(tile, row, column, high, low);
}

template <class Block>
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

// Activates four neighbours of a convolved row, and tells whether one of them is no number.
__device__ __forceinline__ bool activate(float (&x)[4]) {
  float nothing = 0.f;
#pragma unroll
  for (int each = 0; each < 4; ++each) {
    x[each] = silu(x[each]);
    nothing = __fmaf_rn(x[each], 0.f, nothing);
  }
  return nothing != 0.f;
}

__device__ __forceinline__ int64 squares(const float (&x)[4]) {
  return square(x[0]) + square(x[1]) + square(x[2]) + square(x[3]);
}

// What a row whose squares have that sum is multiplied by, so that its length is 1.
__device__ __forceinline__ float by_length(int64 units) { return rsqrt_approx_ftz(__fadd_rn(from_squares(units), 1e-6f)); }

__device__ __forceinline__ void limit(float (&x)[4], float by) {
#pragma unroll
  for (int each = 0; each < 4; ++each) x[each] = __fmul_rn(fminf(fmaxf(x[each], -LARGEST), LARGEST), by);
}

// The largest of a lane's values; of a row that is broken, what is no number counts as zero.
__device__ __forceinline__ float largest(float (&x)[4], bool broken) {
  float most = 0.f;
#pragma unroll
  for (int each = 0; each < 4; ++each) {
    if (broken && !finite(x[each])) x[each] = 0.f;
    most = fmaxf(most, fabsf(x[each]));
  }
  return most;
}

// Powers of two of a row of values. Bits of numbers that are not negative are in their order.
__device__ __forceinline__ void row_scales(float most, float& up, float& down) {
  scales(__uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most))), up, down);
}

// Halves of four neighbours of a row, and where they lie in the first half's tile.
struct Halved {
  uint2 high, low;
  unsigned at;
  __device__ __forceinline__ Halved(int row, int column, const float (&x)[4], float up)
      : at(eight_at(ROWS_BYTES, row, column) + column % 8 * 2) {
    take_halves(x, up, high, low);
  }
};

__device__ __forceinline__ uint2& four_at(unsigned char (&half)[2][ROWS_BYTES], unsigned at) {
  return *reinterpret_cast<uint2*>(&half[0][0] + at);
}

// Stores four neighbours of a convolved row, of its queries or keys (divided by their length) or of its values.
template <typename Store, class Block>
__device__ __forceinline__ void store_part(Block& block, float (&x)[4], int64 units, float scale, bool broken, int row,
                                           int part, int lane, const Store& store) {
  const int column = lane * 4;
  if (part < 2) {
    const float by = __fmul_rn(by_length(units), part ? 1.f : scale);
    limit(x, by);
    const Halved four(row, column, x, TILE_SCALE);
    auto& tile = part ? block.keys : block.queries;
    store.all(four_at(tile[0], four.at), four.high), store.all(four_at(tile[1], four.at), four.low);
    if (part == 0) store.all(*reinterpret_cast<float4*>(&block.query[row][column]), make_float4(x[0], x[1], x[2], x[3]));
  } else {
    float up, down;
    row_scales(largest(x, broken), up, down);
    const Halved four(row, column, x, up);
    store.one(four_at(block.values[0], four.at), four.high, column);
    store.one(four_at(block.values[1], four.at), four.low, column);
    if (lane == 0) store.all(block.down[row], down);
  }
  const float ill = broken ? nan() : 0.f;
  if (lane == 0) store.all(block.ill[part][row], ill);
}

template <int COUNT, typename Store = Here, class Memory>
__device__ __forceinline__ void make_part(Memory& memory, const DeltaSpan& span, const Raw<COUNT>& raw, int row, int end,
                                          int part, int lane, const Store& store = Store()) {
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
    units[own] = 0;
    broken[own] = activate(x[own]);
  }
  if (part < 2) {
#pragma unroll
    for (int own = 0; own < COUNT; ++own) units[own] = squares(x[own]);
#pragma unroll
    for (int own = 0; own < COUNT; ++own) units[own] = sum_of_warp(units[own]);
  }
#pragma unroll
  for (int own = 0; own < COUNT; ++own) {
    broken[own] = __any_sync(~0u, broken[own]);
    if (row + own < end)
      store_part(memory.blocks[(row + own) / BLOCK], x[own], units[own], span.scale, broken[own], (row + own) % BLOCK, part,
                 lane, store);
  }
}

// The log decays of a block's rows, a row to each lane of a half warp, as sums from the block's start; and decays since
// then, and up to its end.
template <class Block>
__device__ __forceinline__ void add_decays(Block& block, int64 total, int row) {
#pragma unroll
  for (int apart = 1; apart < BLOCK; apart *= 2) {
    const int64 before = __shfl_up_sync(~0u, total, apart, BLOCK);
    if (row >= apart) total += before;
  }
  const int64 whole = __shfl_sync(~0u, total, BLOCK - 1, BLOCK);
  block.units[row] = total, block.since[row] = power(from_units(total)), block.until[row] = power(from_units(whole - total));
}

// A row's rate and its log decay, from what the model says of them; rows that are absent are as if nothing was said.
template <class Block>
__device__ __forceinline__ void set_rate(Block& block, half_t raw_logit, half_t raw_slope, bool there, float decay, float bias,
                                         int row) {
  float beta = 0.f, ill = 0.f;
  int64 units = 0;
  if (there) {
    const float logit = wide(raw_logit), g = __fmul_rn(softplus(__fadd_rn(wide(raw_slope), bias)), decay);
    if (finite(logit) && finite(g))
      beta = sigmoid(logit), units = decay_units(g);
    else
      ill = nan();
  } else {
    block.ill[0][row] = block.ill[1][row] = block.ill[2][row] = 0.f, block.down[row] = 0.f;
  }
  block.beta[row] = beta, block.ill[3][row] = ill;
  add_decays(block, units, row);
}

// Rows of which a query or a key is no number count as absent.
template <class Memory>
__device__ __forceinline__ void clear_broken(Memory& memory, int count, int warp, int lane) {
  const auto& own = memory.blocks[lane / BLOCK % count];
  const unsigned broken = __ballot_sync(~0u, own.ill[0][lane % BLOCK] + own.ill[1][lane % BLOCK] != 0.f);
  if (!broken) return;
  for (int row = warp; row < count * BLOCK; row += WARPS)
    if (broken >> row & 1) clear_row(memory.blocks[row / BLOCK], row % BLOCK, lane);
  __syncthreads();
}
