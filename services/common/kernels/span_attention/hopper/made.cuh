// Queries, keys and values of an item's rows, made of the product in front as `store_qkv` makes them. An item has all rows of a
// sequence and K/V head, so no other makes the same. Queries become an operand in shared memory. Keys and values go to paged
// memory, and by way of shared memory into the tiles that they belong to.
//
// What they are made of is copied to where queries lie: the numbers of a query to its own place, and what else a position has
// into the kilobyte of eight rows of the second half. No item has such rows, and nobody looks at their scores.

#pragma once

#include "build.cuh"
#include "arithmetic.cuh"
#include "span_attention/hopper/block.cuh"
#include "span_attention/hopper/heads.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int HEAD_BYTES = SIZE * 2, ROW_NUMBERS = HEADS * KV_HEADS * SIZE;
constexpr int WARPS = THREADS / 32, QUERIES_EACH = (GROUP + WARPS - 1) / WARPS;
constexpr int MOST_POSITIONS = PANELS * GROUP_ROWS / 16, SHARE = MOST_POSITIONS / WARPS;  // of which a warp has each fourth
constexpr int COSINES = 2, SINES = 3, APART = 4;  // behind a position's key and value; a first half of floats each
constexpr int AT_ONCE = 4;
static_assert(!MAKES_HEADS || (ITEMS > 1 && RANKED && HALVES == 1 && APART * HEAD_BYTES == 8 * PANEL_BYTES && !HAS_BLOCK),
              "a warpgroup has all rows of its items, none of the second half");

// What heads of a warp are made with, beside the product.
struct Found {
  Line queries[QUERIES_EACH], key, value;
  long long squares;  // of a lane's position, and where its key and value go
  int slot;
};

struct MadeHeads {
  Sources from;
  const long long* slots;
  unsigned short* kv;
  int places;
  unsigned queries;

  __device__ __forceinline__ unsigned query(int row, int eight) const {
    const int line = row / 8 * 16 + row % 8;
    return queries + eight / 8 * QUERY_PANEL + line * PANEL_BYTES + ((eight % 8 ^ line % 8) << 4);
  }
  __device__ __forceinline__ unsigned apart(int position) const {
    return queries + position % PANELS * QUERY_PANEL + (position / PANELS * 16 + 8) * PANEL_BYTES;
  }

  __device__ __forceinline__ void ask(const Item& item) const {
    const int thread = threadIdx.x % THREADS, width = item.span.width, first = item.sequence * width;
    const unsigned short* rows = from.mixed + (size_t)first * ROW_NUMBERS;
    for (int piece = thread; piece < width * GROUP * ROW_EIGHTS; piece += THREADS) {
      const int row = piece / ROW_EIGHTS, eight = piece % ROW_EIGHTS, head = item.head * GROUP + row % GROUP;
      copy_shared(query(row, eight), rows + row / GROUP * ROW_NUMBERS + head * SIZE + eight * 8, true);
    }
    for (int piece = thread; piece < width * APART * ROW_EIGHTS; piece += THREADS) {
      const int position = piece / (APART * ROW_EIGHTS), own = piece % (APART * ROW_EIGHTS), eight = own % ROW_EIGHTS;
      const int part = own / ROW_EIGHTS, head = (GROUP + part) * KV_HEADS + item.head;
      const float* table = (part == COSINES ? from.cosines : from.sines) + (size_t)(first + position) * SIZE + eight * 4;
      const void* head_at = rows + position * ROW_NUMBERS + head * SIZE + eight * 8;
      copy_shared(apart(position) + own * 16, part < COSINES ? head_at : table, true);
    }
  }

  __device__ __forceinline__ Found find(const Item& item, int warp, int lane) const {
    Found found;
    const int width = item.span.width, at = item.sequence * width + lane;
    found.squares = lane < width && from.squares ? __ldcg(from.squares + at) : 0;
    found.slot = lane < width ? (int)__ldcg(slots + at) : 0;
#pragma unroll
    for (int each = 0; each < QUERIES_EACH; ++each)
      found.queries[each].find(from, min(warp + each * WARPS, GROUP - 1), item.head, KV_HEADS, lane);
    found.key.find(from, KEY, item.head, KV_HEADS, lane), found.value.find(from, VALUE, item.head, KV_HEADS, lane);
    return found;
  }

  // A warp makes keys and values of every fourth position, and some of the queries' heads of all.
  __device__ __forceinline__ void make(const Item& item, const Found& found, int group, int warp, int lane) const {
    const int width = item.span.width;
    await_copies();
    sync_threads(1 + group, THREADS);
    const float by = from.squares ? root_scale(found.squares, from.inverse_width, from.eps) : 1.f;
    const auto value = [&](int number, Line& line) { return line = found.value, warp + number * WARPS; };
    const auto turned = [&](int number, Line& line) {
      if (number < SHARE) return line = found.key, warp + number * WARPS;
      const int query = number - SHARE, which = QUERIES_EACH > 1 ? query / width : 0;
      line = found.queries[0];
#pragma unroll
      for (int other = 1; other < QUERIES_EACH; ++other)
        if (which == other) line = found.queries[other];
      return warp + which * WARPS < GROUP ? query - which * width : width;
    };
    make_some<SHARE, 0>(item, value, 0, by, found.slot, lane);
#pragma unroll 1
    for (int first = 0; first < SHARE + QUERIES_EACH * width; first += AT_ONCE)
      make_some<AT_ONCE, 1>(item, turned, first, by, found.slot, lane);
    publish_shared(1 + group, THREADS);
  }

  // Puts keys and values of the item's positions into a tile that has come without them.
  __device__ __forceinline__ void put(const Item& item, int tile, unsigned keys, unsigned values) const {
    for (int piece = threadIdx.x % THREADS; piece < item.span.width * 2 * ROW_EIGHTS; piece += THREADS) {
      const int own = piece / (2 * ROW_EIGHTS), part = piece / ROW_EIGHTS % 2, eight = piece % ROW_EIGHTS;
      const int position = item.span.length + own, place = position - tile * TOKENS;
      if (position >= item.span.total || place < 0 || place >= TOKENS) continue;
      const uint4 numbers = load_shared_eight(apart(own) + part * HEAD_BYTES + eight * 16);
      const unsigned to = (part ? values : keys) + eight / 8 * HALF_TILE + place * PANEL_BYTES;
      store_shared(to + ((eight % 8 ^ place % 8) << 4), numbers);
    }
  }

 private:
  // Some heads of a warp at once: `head` says which, and of what position. What lies behind the last one is not stored.
  template <int COUNT, int TURN, typename Head>
  __device__ __forceinline__ void make_some(const Item& item, const Head& head, int first, float by, int own_slot,
                                            int lane) const {
    Line lines[COUNT];
    unsigned at[COUNT][2], pairs[COUNT][2];
    int positions[COUNT];
    bool there[COUNT];
    float x[COUNT][2][2];
#pragma unroll
    for (int each = 0; each < COUNT; ++each) {
      Line& line = lines[each];
      const int wanted = head(first + each, line), position = positions[each] = min(wanted, item.span.width - 1);
      there[each] = wanted < item.span.width;
      const unsigned beside = apart(position), eights = lane / 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned query_at = query(position * GROUP + line.row, half * ROW_EIGHTS / 2 + eights) + lane % 4 * 4;
        at[each][half] = line.row < KEY ? query_at : beside + (line.row - KEY) * HEAD_BYTES + (half * SIZE / 2 + lane * 2) * 2;
        line.mixed[half] = __float_as_uint(load_shared(at[each][half]));
      }
      line.cosine = load_shared_pair(beside + COSINES * HEAD_BYTES + lane * 8);
      line.sine = load_shared_pair(beside + SINES * HEAD_BYTES + lane * 8);
    }
#pragma unroll
    for (int each = 0; each < COUNT; ++each) lines[each].scaled(x[each], __shfl_sync(~0u, by, positions[each]), BIASED);
    if (TURN) turn_all(lines, x);
#pragma unroll
    for (int each = 0; each < COUNT; ++each) Line::round(x[each], pairs[each]);
#pragma unroll
    for (int each = 0; each < COUNT; ++each) {
      const int row = lines[each].row, slot = __shfl_sync(~0u, own_slot, positions[each]);
      const size_t place = ((size_t)(row - KEY) * places + slot) * KV_HEADS + item.head;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned short* const to = kv + place * SIZE + half * SIZE / 2 + lane * 2;
        if (there[each]) store_shared(at[each][half], __uint_as_float(pairs[each][half]));
        if (there[each] && row >= KEY) *reinterpret_cast<unsigned*>(to) = pairs[each][half];
      }
    }
  }

  // Step by step, because each step waits for the one before.
  template <int COUNT>
  __device__ __forceinline__ void turn_all(const Line (&lines)[COUNT], float (&x)[COUNT][2][2]) const {
    unsigned long long totals[COUNT];
    unsigned pieces[COUNT][3];
    if (NORMED) {
#pragma unroll
      for (int each = 0; each < COUNT; ++each) totals[each] = Line::squares(x[each]);
#pragma unroll
      for (int each = 0; each < COUNT; ++each) add_pieces(totals[each], pieces[each]);
#pragma unroll
      for (int each = 0; each < COUNT; ++each)
        lines[each].divide(x[each], from, root_scale(sum_of_pieces(pieces[each]), 1.f / SIZE, from.eps));
    }
#pragma unroll
    for (int each = 0; each < COUNT; ++each) lines[each].turn(x[each]);
  }
};
