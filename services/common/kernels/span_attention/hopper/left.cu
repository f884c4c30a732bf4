// Attention of few rows of K/V heads over keys and values that are codes; a grid of any number of CTAs takes all items in turn.
//
// Warps stream tiles of codes into a ring. Codes are widened in registers, exactly, as left operands of products: warpgroups have
// the keys of tiles in turn, and two others all values, by half of their columns. So all of them walk an item at once, though it is
// one chain of sums. Every sum has the order that `program.py` gives it, and so its bits.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "span_attention/hopper/adders.cuh"
#include "span_attention/hopper/counter.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/found_powers.cuh"
#include "span_attention/hopper/handed.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/left_codes.cuh"
#include "span_attention/hopper/loader.cuh"
#include "span_attention/hopper/scorers.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

constexpr int GROUPS_OF_CODES = KEY_GROUPS + VALUE_GROUPS, KINDS = 2;
constexpr int KEY_REGISTERS = 104, VALUE_REGISTERS = 112, OTHER_REGISTERS = 48;

__device__ __forceinline__ void begin_barriers(unsigned loaded, const Slots& slots, const Chain& chain) {
  for (int stage = 0; stage < CODE_STAGES; ++stage) {
    barrier_init(loaded + (KINDS * 2 * CODE_STAGES + stage) * 8, 1);
    for (int kind = 0; kind < KINDS; ++kind) {
      const unsigned own = loaded + kind * 2 * CODE_STAGES * 8 + stage * 8;
      barrier_init(own, ITEM_LOADERS / KINDS + 32);  // lanes, too
      barrier_init(own + CODE_STAGES * 8, (kind ? VALUE_GROUPS : 1) * THREADS / 32);
    }
  }
  for (int slot = 0; slot < HANDED; ++slot) {
    barrier_init(slots.full + slot * 8, THREADS / 32);
    barrier_init(slots.empty + slot * 8, COUNTED_THREADS / 32);
  }
  for (int scorer = 0; scorer < KEY_GROUPS; ++scorer) barrier_init(chain.turns + scorer * 8, THREADS / 32);
  publish_barriers();
}

static_assert(LOADERS == 2, "of its warps two load, one finds powers, and one counts");

extern "C" __global__ void __launch_bounds__((GROUPS_OF_CODES + 1) * THREADS, 1) attend(PARAMETERS) {
  extern __shared__ unsigned char memory[];
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const unsigned codes = kept((shared_address(memory) + 1023) & ~1023u), queries = codes + CODES_BYTES;
  const unsigned weights = queries + QUERY_BYTES, own_exponents = weights + HANDED * HANDED_WEIGHTS;
  const unsigned told = own_exponents + EXPONENTS_BYTES, highest = told + HANDED * TOLD_BYTES;
  const unsigned added = highest + 2 * KEY_GROUPS * THREADS / 32 * BEST_BYTES, ended = added + WHOLE_BYTES,
                 counted = ended + BEST_BYTES;
  const unsigned powers = counted + COUNTER_BYTES, loaded_barriers = powers + CODE_STAGES * POWERS_BYTES;
  const unsigned hand_barriers = loaded_barriers + (KINDS * 2 + 1) * CODE_STAGES * 8;
  const FoundPowers found{powers, hand_barriers - CODE_STAGES * 8};
  const Slots slots{weights, told, hand_barriers, hand_barriers + HANDED * 8};
  const Chain chain{highest, hand_barriers + 2 * HANDED * 8, ended};
  const auto ring = [&](int kind) {
    const unsigned own = loaded_barriers + kind * 2 * CODE_STAGES * 8;
    return LoadRing{codes, own, own + CODE_STAGES * 8};
  };
  Order& order = *reinterpret_cast<Order*>(memory + (chain.turns + KEY_GROUPS * 8 - shared_address(memory)));
  const int ctas = gridDim.x;
  Items items{lengths, reaches, ranks, nullptr, sequences, columns * BLOCK, width, ALONE ? 1 : programs, (int)blockIdx.x, ctas};
  if (!RANKED && items.count() > ctas && items.lines() <= SORTED) {
    order.sort(items);
    items.order = order.lines;
    __syncthreads();
  }
  // What the first loads need is looked up while barriers are made.
  const Box box(warp, lane);
  Lead lead;
  int blocks;
  if (group == GROUPS_OF_CODES) {
    lead = items.lead(min(items.index(0), items.count() - 1));
    blocks = box.first_block(tables + (size_t)lead.sequence * stride, items.room);
  }
  if (threadIdx.x == 0) begin_barriers(loaded_barriers, slots, chain);
  __syncthreads();
  const ItemEnds ends{partial, sums, out, programs, parts, 0, {}};
  if (group == GROUPS_OF_CODES) {
    give_registers<OTHER_REGISTERS>();
    if (warp % 4 == LOADERS) find_powers(items, ring(1), found, own_exponents, lane);
    if (warp % 4 > LOADERS) count_items(items, Counter{ends, counted, counted + BEST_BYTES, lane}, slots);
    if (warp % 4 >= LOADERS) return;
    load_items(items, ring(box.kind), &map, tables, stride, places, box, lead, blocks, lane, side_by_side,
               {exponents, own_exponents});
    return;
  }
  if (group < KEY_GROUPS) {
    take_registers<KEY_REGISTERS>();
    Scorer scorer(chain, queries, scale, group, warp % 4, lane, width);
    score_items(items, ends, scorer, ring(0), slots, own_exponents, q);
  } else {
    take_registers<VALUE_REGISTERS>();
    const Adder adder{ends, added, counted, group - KEY_GROUPS, warp % 4, lane, middles_of(width)};
    add_items(items, adder, ring(1), slots, found);
  }
}
