// What stands between the products of queries, keys and values and of the output, for a row each of many sequences; grid (K/V
// heads, sequences from the longest on).
//
// A CTA is a warp. It has a sequence and K/V head, so no other makes its heads. Some share a multiprocessor: the tiles of all
// are under way while one weighs. What is older than the row is asked for while the product in front drains. Of that, and of the
// kernel before it, nothing is read until both are complete.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "span_attention/alone/queries.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/decode/made.cuh"
#include "span_attention/decode/parts.cuh"
#include "span_attention/decode/sizes.cuh"
#include "span_attention/decode/units.cuh"
#include "span_attention/hopper/heads.cuh"
#include "span_attention/hopper/splits.cuh"

extern "C" __global__ void __launch_bounds__(WARP)
    attend_rows(const __grid_constant__ TensorMap map, const unsigned short* mixed, const long long* squares,
                const unsigned short* bias, const unsigned short* norm, const float* cosines, const float* sines,
                const long long* slots, unsigned short* kv, const int* tables, const int2* ranks, unsigned short* out,
                int places, int stride, int columns, float inverse_width, float eps, float offset, float scale) {
  extern __shared__ unsigned char memory[];
  __shared__ WarpShares shares;
  const int lane = threadIdx.x, head = blockIdx.x, room = columns * BLOCK;
  const int2 rank = __ldcg(ranks + blockIdx.y);
  const int sequence = rank.x, length = min(rank.y, room), last = min(rank.y + 1, room) - 1,
            slot = (int)__ldcg(slots + sequence);
  const int tiles = last / TOKENS + 1, size = tiles_of_split(last);
  const Units units{&map,
                    tables + (size_t)sequence * stride,
                    (shared_address(memory) + 1023) & ~1023u,
                    shared_address(shares.barriers),
                    head * SIZE,
                    places,
                    last,
                    lane};
  if (lane < UNITS) barrier_init(shared_address(&shares.barriers[lane]), 1);
  publish_barriers();
  __syncwarp();
  const int block = units.block_of(0);
  int next = units.block_of(1), behind = units.block_of(2);
  units.ask(0, block), units.ask(1, block);
  if (tiles > 1) units.ask(2, next);
  // Whether the row sees itself: it has a slot of its own.
  const bool own = last == length && slot == __ldcg(units.table + length / BLOCK) * BLOCK + length % BLOCK;
  const Sources from{mixed + (size_t)sequence * ROWS * KV_HEADS * SIZE,
                     BIASED ? bias : nullptr,
                     NORMED ? norm : nullptr,
                     squares ? squares + sequence : nullptr,
                     cosines + (size_t)sequence * SIZE,
                     sines + (size_t)sequence * SIZE,
                     inverse_width,
                     eps,
                     offset};
  Heads heads;
  heads.find(from, head, lane);
  await_previous();
  heads.load(from);
  heads.make(from, shares, kv, places, slot, head, lane);
  RowQueries queries;
  queries.read(shares.rows, lane);
  WarpPart part;
  Whole whole;
  int left = size;  // tiles of the split
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const bool ends = tile + 1 == tiles;
    float scores[TOKEN_STEPS][4];
    unsigned weights[TOKEN_STEPS][2];
    const Unit keys = units.await(tile * 2);
    if (ends && own) keys.put(length % TOKENS, four_of(shares.rows[KEY], lane), lane);
    __syncwarp();
    score(scores, queries, keys, lane);
    __syncwarp();
    if (!ends) units.ask(tile * 2 + 3, next);
    if (ends) hide(scores, tile * TOKENS, last, lane);
    const bool begins = left == 0;
    if (begins) whole.fold(part), left = size;
    --left;
    part.weigh(scores, weights, begins, scale);
    const Unit values = units.await(tile * 2 + 1);
    if (ends) {
      if (own) values.put(length % TOKENS, four_of(shares.rows[VALUE], lane), lane);
      // A weight of nothing does not hide what is no number.
      for (int line = last % TOKENS + 1; line < TOKENS; ++line) values.put(line, make_uint2(0, 0), lane);
    }
    __syncwarp();
    part.add(weights, values, lane);
    __syncwarp();
    if (tile + 2 < tiles) units.ask(tile * 2 + 4, behind);
    next = behind, behind = units.block_of(tile + 3);
  }
  allow_next();
  whole.fold(part);
  const int row = lane / 4;
  whole.store(out + (((size_t)sequence * KV_HEADS + head) * GROUP + min(row, GROUP - 1)) * SIZE, row < GROUP, lane);
}
