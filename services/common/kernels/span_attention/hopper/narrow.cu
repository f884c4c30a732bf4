// Attention of trees whose heads have 64 numbers: a CTA takes an item.
//
// A warpgroup takes the tiles before that of the length, which all nodes see alike. Another one takes that tile and the one behind
// it at the same time, along the paths of nodes, and adds what both have found. Where a split has tiles of both it waits.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "span_attention/hopper/ends.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/loader.cuh"
#include "span_attention/hopper/queries.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/softmax.cuh"
#include "span_attention/hopper/span.cuh"
#include "span_attention/hopper/step_walk.cuh"
#include "span_attention/hopper/steps.cuh"
#include "span_attention/hopper/walk.cuh"

constexpr int CONTEXT = 0, NODES = 1, WORKERS = 2, WORKING = WORKERS * THREADS;  // warpgroups, and two warps that load for them
constexpr int QUERIES_THERE = 1 + WORKERS, FOUND = 2 + WORKERS;                  // numbers of barriers
constexpr int FOURS = COLUMNS / 8 + 1, PART_BYTES = FOURS * THREADS * 16;        // of a part: a thread's numbers by fours

static_assert(TREE && SPREAD == 1 && PANELS == 1 && LOADERS == 1, "a warp loads for a warpgroup");

// A thread leaves its numbers of a part for one of the other warpgroup, and that one takes them.
__device__ __forceinline__ void leave(const Part& part, unsigned to) {
  const unsigned own = to + threadIdx.x % THREADS * 16;
#pragma unroll
  for (int four = 0; four < COLUMNS / 8; ++four)
    store_shared(own + four * THREADS * 16,
                 make_uint4(__float_as_uint(part.sum[four * 4]), __float_as_uint(part.sum[four * 4 + 1]),
                            __float_as_uint(part.sum[four * 4 + 2]), __float_as_uint(part.sum[four * 4 + 3])));
  store_shared(own + COLUMNS / 8 * THREADS * 16,
               make_uint4(__float_as_uint(part.best[0]), __float_as_uint(part.best[HALVES - 1]), __float_as_uint(part.mass[0]),
                          __float_as_uint(part.mass[HALVES - 1])));
}

__device__ __forceinline__ void take(Part& part, unsigned from) {
  const unsigned own = from + threadIdx.x % THREADS * 16;
#pragma unroll
  for (int four = 0; four < COLUMNS / 8; ++four) {
    const float4 numbers = load_four(own + four * THREADS * 16);
    part.sum[four * 4] = numbers.x, part.sum[four * 4 + 1] = numbers.y;
    part.sum[four * 4 + 2] = numbers.z, part.sum[four * 4 + 3] = numbers.w;
  }
  const float4 marks = load_four(own + COLUMNS / 8 * THREADS * 16);
  part.best[HALVES - 1] = marks.y, part.best[0] = marks.x;
  part.mass[HALVES - 1] = marks.w, part.mass[0] = marks.z;
}

// Loads the tile of the length and the one behind it. The kernel in front of this one leaves rows in them.
__device__ __forceinline__ void load_nodes(const KvLoader& loader, KvRing ring, int tile, int end) {
  int blocks[2];
#pragma unroll
  for (int each = 0; each < 2; ++each)
    blocks[each] = tile + each < end ? loader.table[loader.position(tile + each) / BLOCK] : 0;
  await_previous();
#pragma unroll
  for (int each = 0; each < 2; ++each) {
    if (tile + each >= end) break;
    loader.ask(ring, tile + each, blocks[each]);
    ring.next();
  }
}

// Loads the tiles before them, which no kernel in front of this one writes unless sequences lie side by side.
__device__ __forceinline__ void load_context(const KvLoader& loader, KvRing ring, int end) {
  bool waited = false;
  int block = end > 0 ? loader.table[loader.position(0) / BLOCK] : 0;
  for (int tile = 0; tile < end; ++tile) {
    const int next = tile + 1 < end ? loader.table[loader.position(tile + 1) / BLOCK] : 0;
    if (tile >= STAGES) await_phase(ring.empty_at(), ring.parity ^ 1);
    if (!waited && tile * TOKENS + TOKENS > loader.final) {
      await_previous();
      waited = true;
    }
    loader.ask(ring, tile, block);
    ring.next();
    block = next;
  }
}

// The grid has a CTA for each K/V head of each sequence; where not all run at once, long ones begin first if their order is known.
extern "C" __global__ void __launch_bounds__(WORKING + WORKERS * 32, 1) attend(PARAMETERS) {
  extern __shared__ unsigned char memory[];
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const int sequence = ranks ? ranks[blockIdx.y].x : blockIdx.y;
  const int* table = tables + (size_t)sequence * stride;
  const Lead lead{sequence, int(blockIdx.x), 0, 0, lengths[sequence], reaches[sequence]};
  const Item item = item_of(lead, columns * BLOCK, width, positions + (size_t)sequence * width);
  const int end = (item.span.seen() + TOKENS - 1) / TOKENS, last = min(item.span.length / TOKENS, end - 1);
  if (end == 0) return;
  const unsigned stages = kept((shared_address(memory) + 1023) & ~1023u), queries = stages + (STAGES + 2) * STAGE;
  const unsigned found = queries + QUERY_BYTES, barriers = found + 2 * PART_BYTES;
  KvRing ring{stages, barriers, barriers + STAGES * 8};
  const KvRing nodes{stages + STAGES * STAGE, barriers + 2 * STAGES * 8, 0};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(ring.full + stage * 8, 1);
      barrier_init(ring.empty + stage * 8, THREADS / 32);
    }
    for (int stage = 0; stage < 2; ++stage) barrier_init(nodes.full + stage * 8, 1);
    publish_barriers();
  }
  __syncthreads();
  if (group == WORKERS) {
    const KvLoader loader(&map, table, item, Box(0, lane), places, lane, side_by_side);
    if (warp % 4 == NODES)
      load_nodes(loader, nodes, last, end);
    else
      load_context(loader, ring, last);
    return;
  }
  const ItemEnds ends{partial, sums, out, 1, 0, 0, {block_keys, block_values, block_sequence, block_row, block_head}};
  const Walk walk{ends, item, queries, 0, item.most(), 0, end, warp % 4 * 8 + lane / 4, lane, scale};
  const Queries<WORKERS> own(queries, ends, item, 0, group);
  await_previous();
  own.ask(q);
  Steps steps(memory + (barriers + (2 * STAGES + 2) * 8 - shared_address(memory)), item.span);
  if (group == NODES) {
    steps.store(item.span, lineage + (size_t)sequence * width * width, threadIdx.x % THREADS, THREADS);
    steps.find_last(item.span, table);
  }
  await_copies();
  publish_shared(QUERIES_THERE, WORKING);
  Part whole;
  whole.clear();
  if (group == CONTEXT) {
    Part part;
    part.clear();
    const Walk context{ends, item, queries, group, item.most(), 0, last, walk.row, lane, scale};
    if (last > 0) context.run(part, whole, ring, [] {});
    if (item.most() == 1 && last > 0) whole.fold(part);
    leave(whole, found);
    if (item.most() > 1) leave(part, found + PART_BYTES);
    asm volatile("bar.arrive %0, %1;" ::"r"(FOUND), "r"(WORKING) : "memory");
  } else {
    const auto come = [&](Part& part, Part& before) {
      sync_threads(FOUND, WORKING);
      take(before, found);
      if (item.most() > 1) take(part, found + PART_BYTES);
    };
    walk_nodes(walk, last, nodes, steps, whole, come);
    walk.end(whole);
    allow_next();
  }
}
