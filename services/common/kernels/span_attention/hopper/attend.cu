// Attention of rows of K/V heads over paged keys and values; a grid of any number of CTAs takes all items in turn.
//
// Some warps stream tiles of keys and values into a ring, others multiply. The scores of a tile are computed while the
// tile before it is weighed. Every sum has the order that `program.py` gives it, and so its bits.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "span_attention/hopper/codes.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/loader.cuh"
#include "span_attention/hopper/queries.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"
#include "span_attention/hopper/walk.cuh"

// Warpgroups that share rows copy when all have multiplied those before.
__device__ __forceinline__ void ask_queries(const Queries<1>& queries, const unsigned short* q) {
  if constexpr (COLUMN_GROUPS > 1) sync_threads(1 + GROUPS, GROUPS * THREADS);
  queries.ask(q);
}

__device__ __forceinline__ void await_queries(int group) {
  await_copies();
  if constexpr (COLUMN_GROUPS > 1)
    publish_shared(1 + GROUPS, GROUPS * THREADS);
  else
    publish_shared(1 + group, THREADS);
}

// Registers of threads: those that load give some up.
constexpr bool GIVES = CODES || GROUPS > 1;
constexpr int REGISTERS = CODES ? 208 : 232, WIDENERS_REGISTERS = 56;
constexpr int ALL_THREADS = THREADS * (GROUPS + WIDENERS) + (GIVES ? THREADS : LOADERS * 32);

extern "C" __global__ void __launch_bounds__(ALL_THREADS, 1) attend(PARAMETERS) {
  extern __shared__ unsigned char memory[];
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const int own = CODES ? 0 : group == GROUPS ? warp % 4 / ITEM_LOADERS : group / ITEM_GROUPS;
  const unsigned stages = kept((shared_address(memory) + 1023) & ~1023u), codes = stages + ITEMS * STAGES * STAGE;
  const unsigned all_queries = codes + CODES_BYTES, queries = all_queries + own * QUERY_BYTES;
  const unsigned own_exponents = all_queries + ITEMS * QUERY_BYTES, barriers = own_exponents + EXPONENTS_BYTES;
  const unsigned code_barriers = barriers + 2 * ITEMS * STAGES * 8;
  KvRing ring{stages + own * STAGES * STAGE, barriers + own * STAGES * 8, barriers + (ITEMS + own) * STAGES * 8};
  Order& order = *reinterpret_cast<Order*>(memory + (code_barriers + 2 * CODE_STAGES * 8 - shared_address(memory)));
  const LoadRing read{CODES ? codes : ring.tiles, CODES ? code_barriers : ring.full,
                      CODES ? code_barriers + CODE_STAGES * 8 : ring.empty};
  // A long item and a short one share a multiprocessor.
  const int ctas = gridDim.x, worker = own ? 2 * ctas - 1 - blockIdx.x : blockIdx.x;
  Items items{lengths, reaches, ranks, nullptr, sequences, columns * BLOCK, width, ALONE ? 1 : programs, worker, ITEMS * ctas};
  if (!RANKED && items.count() > ctas && items.lines() <= SORTED) {
    order.sort(items);
    items.order = order.lines;
    __syncthreads();
  }
  // What the first loads need is looked up while barriers are made.
  const Box box(warp, lane);
  Lead loaded;
  int blocks;
  if (group == GROUPS) {
    loaded = items.lead(min(items.index(0), items.count() - 1));
    blocks = box.first_block(tables + (size_t)loaded.sequence * stride, items.room);
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < ITEMS * STAGES; ++stage) {
      barrier_init(barriers + stage * 8, CODES ? WIDENING_WARPS : ITEM_LOADERS);
      barrier_init(barriers + (ITEMS * STAGES + stage) * 8, ITEM_GROUPS * THREADS / 32);
    }
    for (int stage = 0; stage < CODE_STAGES; ++stage) {
      barrier_init(code_barriers + stage * 8, ITEM_LOADERS);
      barrier_init(code_barriers + (CODE_STAGES + stage) * 8, WIDENING_WARPS);
    }
    publish_barriers();
  }
  __syncthreads();
  if (group == GROUPS) {
    if constexpr (GIVES) give_registers<40>();
    if (CODES && warp % 4 >= LOADERS) return;
    load_items(items, read, &map, tables, stride, places, box, loaded, blocks, lane, side_by_side, {exponents, own_exponents});
    return;
  }
  if (CODES && group > GROUPS) {
    give_registers<WIDENERS_REGISTERS>();
    widen_items(items, read, ring, own_exponents, warp - 4 * (GROUPS + 1), lane);
    return;
  }
  if constexpr (GIVES) take_registers<REGISTERS>();
  Lead lead = items.lead(min(items.index(0), items.count() - 1));
  Item next = items.item(lead);
  const ItemEnds ends{partial,
                      sums,
                      out,
                      programs,
                      parts,
                      group % COLUMN_GROUPS * COLUMNS,
                      {block_keys, block_values, block_sequence, block_row, block_head}};
  const int in_tile = group % ITEM_GROUPS / COLUMN_GROUPS * GROUP_ROWS;
  const Queries<1> first(queries, ends, next, in_tile, 0);
  await_previous();
  if (group == GROUPS - 1) end_turn(group);
  ask_queries(first, q);
  for (int round = 0; items.index(round) < items.count(); ++round) {
    const Item item = next;
    const bool more = items.index(round + 1) < items.count();
    const int most = item.most(), least = TOGETHER ? most : item.least();
    const int row = item.span.first_row + in_tile + warp % 4 * 8 + lane / 4;
    await_queries(group);
    for (int size = least; size <= most; size += max(most - least, 1)) {
      const SplitTiles tiles(item.span, item.program, programs, size);
      const bool empty = tiles.begin >= tiles.end;
      Part part;
      const Walk walk{ends, item, queries + in_tile * PANEL_BYTES, group, size, tiles.begin, tiles.end, row, lane, scale};
      const bool ends_item = size == most && more;
      const auto look_up = [&] {
        if (ends_item) lead = items.lead(items.index(round + 1));
      };
      if (empty)
        look_up();
      else
        walk.run(part, ring, look_up);
      if (ends_item) {
        next = items.item(lead);
        ask_queries(Queries<1>(queries, ends, next, in_tile, 0), q);
      }
      if (!empty) walk.end(part);
    }
  }
  allow_next();
}
