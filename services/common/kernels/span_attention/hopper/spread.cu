// Attention of items of short contexts: two CTAs of a cluster take one, each half of the columns of its values.
//
// A warpgroup alone would weigh a tile while the matrix units wait, or wait for them. So scorers compute the weights of a tile
// each in turn. Weights go through shared memory to a warpgroup that adds the values. Splits must have one tile each: in larger
// ones the weights of a tile follow from the tiles before it. The adder takes such items alone.
//
// What the first loads need is looked up while barriers are made, and a cluster has one item: a round waits for its first tiles.
//
// Nodes of a TREE have paths of their own in the last two tiles. Their scores and values are put together by warps.
//
// `build.cuh` also defines SCORERS, and SLOTS: tiles whose weights are on their way.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "wgmma.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/loader.cuh"
#include "span_attention/hopper/paths.cuh"
#include "span_attention/hopper/powers.cuh"
#include "span_attention/hopper/products.cuh"
#include "span_attention/hopper/queries.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"
#include "span_attention/hopper/walk.cuh"

constexpr int ADDER = SCORERS, COPIERS = 2;
constexpr int SLOT = GROUP_ROWS * PANEL_BYTES, SLOT_BEST = GROUP_ROWS * 4;  // bytes of weights, and of what was highest
constexpr int QUERIES_THERE = 2 + SCORERS;                                  // a barrier's number

// Weights on their way, by tiles.
struct Relay {
  unsigned weights, best, full, empty;

  __device__ __forceinline__ unsigned weights_at(int tile) const { return weights + tile % SLOTS * SLOT; }
  __device__ __forceinline__ unsigned best_at(int tile, int line) const { return best + tile % SLOTS * SLOT_BEST + line * 4; }
  __device__ __forceinline__ unsigned full_at(int tile) const { return full + tile % SLOTS * 8; }
  __device__ __forceinline__ unsigned empty_at(int tile) const { return empty + tile % SLOTS * 8; }
  static __device__ __forceinline__ unsigned parity(int tile) { return tile / SLOTS % 2; }

  // The tensor cores read them as they read queries.
  __device__ __forceinline__ void leave(int tile, const unsigned (&blocks)[TOKENS / 16][4],
                                        const float (&highest)[HALVES]) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x % THREADS / 32 * 16, line = first + lane % 16;
    await_phase(empty_at(tile), parity(tile) ^ 1);
#pragma unroll
    for (int part = 0; part < TOKENS / 16; ++part)
      store_blocks(weights_at(tile) + line * PANEL_BYTES + ((part * 2 + lane / 16 ^ line % 8) << 4), blocks[part]);
#pragma unroll
    for (int half = 0; half < HALVES; ++half)
      if (lane % 4 == 0) store_shared(best_at(tile, first + half * 8 + lane / 4), highest[half]);
    publish();
    __syncwarp();
    if (lane == 0) arrive(full_at(tile));
  }
};

// Scores of a tile. Those of nodes, which may lie in the next tile, too, are put in the order of their paths. No stage of either
// is filled again.
__device__ __forceinline__ void ask_tile(float (&scores)[TOKENS / 2], const Walk& walk, KvRing& ring, const Paths& paths,
                                         int tile) {
  const Span& span = walk.item.span;
  const bool nodes = TREE && Paths::in(span, tile);
  if (nodes && tile + 1 < walk.end_tile) {
    ring.go_to(tile + 1);
    await_phase(ring.full_at(), ring.parity);
    ask_scores(scores, walk.queries, ring.keys());
    end_products();
    await_products<0>();
    hold(scores);
    paths.show(scores, span, tile + 1, walk.row, walk.lane);
  }
  ring.go_to(tile);
  walk.await_tile(ring, tile);
  ask_scores(scores, walk.queries, ring.keys());
  end_products();
  await_products<0>();
  hold(scores);
  if (nodes) {
    paths.show(scores, span, tile, walk.row, walk.lane);
    paths.order(scores, span, tile, walk.row, walk.lane);
  }
}

// Where the values of the tile behind one lie, when they have come; its own where it is the last.
__device__ __forceinline__ unsigned values_behind(const Walk& walk, KvRing& ring, int tile) {
  if (tile + 1 < walk.end_tile) ring.go_to(tile + 1);
  await_phase(ring.full_at(), ring.parity);
  const unsigned values = ring.values();
  ring.go_to(tile);
  return values;
}

// Leaves the weights of every so many tiles, and frees their keys.
__device__ __forceinline__ void score(const Walk& walk, KvRing& ring, const Relay& relay, const Paths& paths, int scorer) {
  float scores[TOKENS / 2];
  unsigned weights[TOKENS / 16][4];
  clear(scores), clear(weights);
  for (int tile = walk.begin + scorer; tile < walk.end_tile; tile += SCORERS) {
    float best[HALVES];
    ask_tile(scores, walk, ring, paths, tile);
    if (walk.refilled(tile)) free_stage<false>(ring.empty_at(), walk.lane);
    if constexpr (!TREE) walk.hide_last(scores, tile);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) best[half] = walk.raise(scores, half, NOTHING);
    pack(weights, scores);
    relay.leave(tile, weights, best);
  }
}

// The values of a tile, weighed along paths, and the mass of their weights, as products with ones behind the values give it.
__device__ __forceinline__ void add_paths(float (&sums)[COLUMNS / 2 + 4], const Walk& walk, KvRing& ring, const Relay& relay,
                                          const Paths& paths, int tile) {
  const int line = threadIdx.x % THREADS / 32 * 16 + walk.lane % 16;
  const unsigned behind = values_behind(walk, ring, tile);
  unsigned weights[TOKENS / 16][4];
#pragma unroll
  for (int part = 0; part < TOKENS / 16; ++part)
    load_blocks(weights[part], relay.weights_at(tile) + line * PANEL_BYTES + ((part * 2 + walk.lane / 16 ^ line % 8) << 4));
#pragma unroll
  for (int number = 0; number < COLUMNS / 2; ++number) sums[number] = 0.f;
  paths.add(sums, weights, walk.item.span, tile, ring.values(), behind, walk.lane);
  float mass[HALVES];
#pragma unroll
  for (int half = 0; half < HALVES; ++half) mass[half] = 0.f;
  add_mass(mass, weights);
#pragma unroll
  for (int half = 0; half < HALVES; ++half) sums[COLUMNS / 2 + half * 2] = mass[half];
}

// Adds the values of all tiles. Products with ones behind them give the mass of their weights.
__device__ __forceinline__ void add(const Walk& walk, KvRing& ring, const Relay& relay, const Paths& paths, unsigned ones,
                                    Part& whole) {
  const int line = threadIdx.x % THREADS / 32 * 16 + walk.lane / 4;
  float sums[COLUMNS / 2 + 4];
  whole.clear();
  for (int tile = walk.begin; tile < walk.end_tile; ++tile) {
    ring.go_to(tile);
    await_phase(relay.full_at(tile), Relay::parity(tile));
    await_phase(ring.full_at(), ring.parity);
    Part part;
    const auto load_best = [&] {
#pragma unroll
      for (int half = 0; half < HALVES; ++half) part.best[half] = load_shared(relay.best_at(tile, line + half * 8));
    };
    if (TREE && Paths::in(walk.item.span, tile)) {
      load_best();
      add_paths(sums, walk, ring, relay, paths, tile);
    } else {
      add_weighed(sums, relay.weights_at(tile), ring.values(), ones);
      end_products();
      load_best();
      await_products<0>();
      hold(sums);
    }
    if (walk.refilled(tile)) free_stage<false>(ring.empty_at(), walk.lane);
    __syncwarp();
    if (walk.lane == 0) arrive(relay.empty_at(tile));
#pragma unroll
    for (int half = 0; half < HALVES; ++half) part.mass[half] = sums[COLUMNS / 2 + half * 2];
#pragma unroll
    for (int number = 0; number < COLUMNS / 2; ++number) part.sum[number] = sums[number];
    whole.fold(part);
  }
}

// Takes an item of long splits along paths. Few rounds do, so that no product runs beside other work.
__device__ __forceinline__ void walk_paths(const Walk& walk, KvRing& ring, const Paths& paths, Part& part) {
  Part whole;
  float scores[TOKENS / 2], higher[HALVES], fade[HALVES];
  unsigned weights[TOKENS / 16][4];
  clear(scores), clear(weights);
  part.clear(), whole.clear();
  Edges edges(walk.item, walk.begin, walk.size, walk.row);
  for (int tile = walk.begin; tile < walk.end_tile; ++tile) {
    ask_tile(scores, walk, ring, paths, tile);
    walk.weigh(scores, part, tile, edges, higher, fade);
    walk.end_splits(part, whole, edges, tile);
    walk.take(part, weights, scores, higher, fade);
    if (Paths::in(walk.item.span, tile)) {
      const unsigned behind = values_behind(walk, ring, tile);
      paths.add(part.sum, weights, walk.item.span, tile, ring.values(), behind, walk.lane);
    } else {
      ask_values(part.sum, weights, ring.values());
      end_products();
      await_products<0>();
      hold(part.sum);
    }
    if (walk.refilled(tile)) free_stage(ring.empty_at(), walk.lane);
  }
  whole.fold(part);
  part = whole;
}

// The grid has a cluster for each K/V head of each 64 rows of a sequence. Up to 64 rows need no division.
extern "C" __global__ void __cluster_dims__(SPREAD, 1, 1) __launch_bounds__((SCORERS + 2) * THREADS, 1) attend(PARAMETERS) {
  extern __shared__ unsigned char memory[];
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const int line = blockIdx.y, lines = (width * GROUP + ROWS - 1) / ROWS, sequence = lines > 1 ? line / lines : line;
  const Lead lead{sequence,          int(blockIdx.x) / SPREAD, 0, (line - sequence * lines) * ROWS,
                  lengths[sequence], reaches[sequence]};
  const int* table = tables + (size_t)sequence * stride;
  const Box box(warp % 4, lane);
  const int first = box.first_block(table, columns * BLOCK);
  const unsigned stages = kept((shared_address(memory) + 1023) & ~1023u), queries = stages + STAGES * STAGE;
  const unsigned ones = queries + QUERY_BYTES, weights = ones + HALF_TILE, best = weights + SLOTS * SLOT;
  const unsigned barriers = best + SLOTS * SLOT_BEST;
  KvRing ring{stages, barriers, barriers + STAGES * 8};
  const Relay relay{weights, best, barriers + 2 * STAGES * 8, barriers + (2 * STAGES + SLOTS) * 8};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(ring.full + stage * 8, ITEM_LOADERS);
      barrier_init(ring.empty + stage * 8, 2 * THREADS / 32 * SPREAD);
    }
    for (int slot = 0; slot < 2 * SLOTS; ++slot) barrier_init(relay.full + slot * 8, THREADS / 32);
    publish_barriers();
  }
  const Item item = item_of(lead, columns * BLOCK, width, positions + (size_t)sequence * width);
  Paths paths(memory + (barriers + 2 * (STAGES + SLOTS) * 8 - shared_address(memory)));
  if (TREE) paths.store(item.span, lineage + (size_t)sequence * width * width);
  __syncthreads();
  arrive_in_cluster();
  if (TREE && group == ADDER) paths.find_last(item.span, table);
  if (group > ADDER) {
    give_registers<40>();
    const KvLoader loader(&map, table, item, box, places, lane, side_by_side);
    await_cluster();
    if (warp % 4 < LOADERS) Loading().load(loader, item, ring, 1, first);
    return;
  }
  const ItemEnds ends{
      partial, nullptr, out, 1, 0, spread_rank() * COLUMNS, {block_keys, block_values, block_sequence, block_row, block_head}};
  const SplitTiles tiles(item.span, 0, 1, item.most());
  const int row = item.span.first_row + warp % 4 * 8 + lane / 4;
  const Walk walk{ends, item, queries, group, item.most(), tiles.begin, tiles.end, row, lane, scale};
  const bool apart = item.most() == 1;
  if (group < ADDER) {
    give_registers<80>();
    const Queries<COPIERS> own(queries, ends, item, 0, group);
    await_previous();
    if (group < COPIERS) own.ask(q);
    await_cluster();
    await_copies();
    publish_shared(QUERIES_THERE, (SCORERS + 1) * THREADS);
    if (apart) score(walk, ring, relay, paths, group);
  } else {
    take_registers<184>();
    for (int at = threadIdx.x % THREADS * 16; at < HALF_TILE; at += THREADS * 16)
      store_shared(ones + at, make_uint4(ONES, ONES, ONES, ONES));
    await_previous();
    await_cluster();
    publish_shared(QUERIES_THERE, (SCORERS + 1) * THREADS);
    Part part;
    if (apart)
      add(walk, ring, relay, paths, ones, part);
    else if (TREE && tiles.begin < tiles.end)
      walk_paths(walk, ring, paths, part);
    else if (tiles.begin < tiles.end)
      walk.run(part, ring, [] {});
    if (tiles.begin < tiles.end) walk.end(part);
    allow_next();
  }
}
