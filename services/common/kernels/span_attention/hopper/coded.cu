// Attention of up to 64 rows of K/V heads over keys and values that are codes; a grid of any number of CTAs takes all items in turn.
//
// Warps stream tiles of codes into a ring. Others widen them into a second ring, exactly. From there a warpgroup takes keys, and
// leaves weights for one that takes values. Every sum has the order that `program.py` gives it, and so its bits.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "span_attention/hopper/apart.cuh"
#include "span_attention/hopper/codes.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/loader.cuh"
#include "span_attention/hopper/queries.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"
#include "span_attention/hopper/walk.cuh"

constexpr int SCORER = 0, ADDER = 1, LOADER = 2, WIDENER = 3;  // the first of its warpgroups
constexpr int MULTIPLIERS = 2 * THREADS / 32;                  // warps that free a stage

struct Rows {
  const Items& items;
  const ItemEnds& ends;
  unsigned queries;
  float scale;
  int group, lane;

  // Calls with a walk for each size that splits of an item's rows have, where it has tiles; the last one with what to do then.
  template <typename Take>
  __device__ __forceinline__ void walk(const Item& item, const Take& take) const {
    const int most = item.most(), least = TOGETHER ? most : item.least();
    const int row = item.span.first_row + threadIdx.x % THREADS / 32 * 8 + lane / 4;
    for (int size = least; size <= most; size += max(most - least, 1)) {
      const SplitTiles tiles(item.span, item.program, items.programs, size);
      if (tiles.begin < tiles.end) take(Walk{ends, item, queries, group, size, tiles.begin, tiles.end, row, lane, scale});
    }
  }

  __device__ __forceinline__ void score(KvRing ring, Handover to, const unsigned short* q) const {
    Item next = items.item(items.lead(min(items.index(0), items.count() - 1)));
    const Queries<1> first(queries, ends, next, 0, 0);
    await_previous();
    first.ask(q);
    for (int round = 0; items.index(round) < items.count(); ++round) {
      const Item item = next;
      const bool more = items.index(round + 1) < items.count();
      Lead lead;
      if (more) lead = items.lead(items.index(round + 1));
      await_copies();
      publish_shared(1 + SCORER, THREADS);
      walk(item, [&](const Walk& own) { score_tiles(own, ring, to); });
      if (!more) break;
      next = items.item(lead);
      Queries<1>(queries, ends, next, 0, 0).ask(q);
    }
  }

  __device__ __forceinline__ void add(KvRing ring, Handover from) const {
    await_previous();
    for (int round = 0; items.index(round) < items.count(); ++round)
      walk(items.item(items.lead(items.index(round))), [&](const Walk& own) {
        Part part;
        add_tiles(own, ring, from, part);
        own.end(part);
      });
    allow_next();
  }
};

extern "C" __global__ void __launch_bounds__((WIDENER + WIDENERS) * THREADS, 1) attend(PARAMETERS) {
  extern __shared__ unsigned char memory[];
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const unsigned stages = kept((shared_address(memory) + 1023) & ~1023u), codes = stages + STAGES * STAGE;
  const unsigned queries = codes + CODES_BYTES, weights = queries + QUERY_BYTES, told = weights + HANDED * HANDED_WEIGHTS;
  const unsigned own_exponents = told + HANDED * HANDED_TOLD, barriers = own_exponents + EXPONENTS_BYTES;
  const unsigned code_barriers = barriers + 2 * STAGES * 8, hand_barriers = code_barriers + 2 * CODE_STAGES * 8;
  const KvRing ring{stages, barriers, barriers + STAGES * 8};
  const LoadRing read{codes, code_barriers, code_barriers + CODE_STAGES * 8};
  const Handover handover{weights, told, hand_barriers, hand_barriers + HANDED * 8};
  Order& order = *reinterpret_cast<Order*>(memory + (hand_barriers + 2 * HANDED * 8 - shared_address(memory)));
  const int ctas = gridDim.x;
  Items items{lengths, reaches, ranks, nullptr, sequences, columns * BLOCK, width, ALONE ? 1 : programs, (int)blockIdx.x, ctas};
  if (!RANKED && items.count() > ctas && items.lines() <= SORTED) {
    order.sort(items);
    items.order = order.lines;
    __syncthreads();
  }
  // What the first loads need is looked up while barriers are made.
  const Box box(warp, lane);
  Lead loaded;
  int blocks;
  if (group == LOADER) {
    loaded = items.lead(min(items.index(0), items.count() - 1));
    blocks = box.first_block(tables + (size_t)loaded.sequence * stride, items.room);
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(ring.full + stage * 8, WIDENING_WARPS);
      barrier_init(ring.empty + stage * 8, MULTIPLIERS);
    }
    for (int stage = 0; stage < CODE_STAGES; ++stage) {
      barrier_init(read.full + stage * 8, ITEM_LOADERS);
      barrier_init(read.empty + stage * 8, WIDENING_WARPS);
    }
    for (int slot = 0; slot < HANDED; ++slot) {
      barrier_init(handover.full + slot * 8, THREADS / 32);
      barrier_init(handover.empty + slot * 8, THREADS / 32);
    }
    publish_barriers();
  }
  __syncthreads();
  if (group == LOADER) {
    give_registers<40>();
    if (warp % 4 >= LOADERS) return;
    load_items(items, read, &map, tables, stride, places, box, loaded, blocks, lane, side_by_side, {exponents, own_exponents});
    return;
  }
  if (group >= WIDENER) {
    give_registers<72>();
    widen_items(items, read, ring, own_exponents, warp - 4 * WIDENER, lane);
    return;
  }
  const ItemEnds ends{partial, sums, out, programs, parts, 0, {}};
  const Rows rows{items, ends, queries, scale, group, lane};
  if (group == SCORER) {
    take_registers<120>();
    rows.score(ring, handover, q);
  } else {
    take_registers<176>();
    rows.add(ring, handover);
  }
}
