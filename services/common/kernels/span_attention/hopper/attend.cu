// Attention of rows of K/V heads over paged keys and values; a grid of any number of CTAs takes all items in turn.
//
// Some warps stream tiles of keys and values into a ring, others multiply. The scores of a tile are computed while the
// tile before it is weighed. Every sum has the order that `program.py` gives it, and so its bits.

// Where the next splits of a thread's rows begin: of all rows alike, or by the sizes of theirs. Warpgroups that share tiles have
// no registers to tell.
struct Edges {
  int edges[HALVES], sizes[HALVES];
  bool alike;

  __device__ __forceinline__ Edges(const Item& item, int begin, int size, int row)
      : alike(!TOGETHER || (ROW_GROUPS == 1 && item.least() == item.most())) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      sizes[half] = alike ? size : item.span.split(row + half * HALF_ROWS);
      edges[half] = begin + sizes[half];
    }
  }
  __device__ __forceinline__ bool at(int tile, int half) const { return tile == edges[half]; }
  __device__ __forceinline__ void next(int half) { edges[half] += sizes[half]; }
};

struct Walk {
  const Ends& ends;
  const Item& item;
  unsigned queries;
  int group, size, begin, end_tile, row, lane;
  float scale;

  __device__ __forceinline__ int first_row() const {
    return item.span.first_row + group % ITEM_GROUPS / COLUMN_GROUPS * GROUP_ROWS;
  }
  __device__ __forceinline__ unsigned own(unsigned values) const { return values + ends.column / PANEL * HALF_TILE; }

  // Copies of what lies behind the last position may be anything: as values they count as zero.
  __device__ __forceinline__ void clear_behind(unsigned values, int tile) const {
    const int place = threadIdx.x % THREADS / 2;
    if (place >= item.span.seen() - tile * TOKENS) {
#pragma unroll
      for (int part = 0; part < COLUMNS / 16; ++part)
        store_shared(own(values) + part / 4 * HALF_TILE + place * PANEL_BYTES + threadIdx.x % 2 * 64 + part % 4 * 16,
                     make_uint4(0, 0, 0, 0));
    }
    publish_shared(1 + group, THREADS);
  }

  // The rows of a drafter's block are asked for first, so that they come while the tile does. They have the registers of the
  // scores, which begin anew.
  __device__ __forceinline__ void await_own(float (&scores)[TOKENS / 2], const Ring& ring, int tile) const {
    OwnRows own;
    own.ask(ends.block, item, tile);
    await_phase(ring.full_at(), ring.parity);
    own.store(ring.keys(), ring.values(), item, tile);
    clear_behind(ring.values(), tile);
#pragma unroll
    for (int number = 0; number < TOKENS / 2; ++number) scores[number] = 0.f;
  }

  __device__ __forceinline__ void ask(float (&scores)[TOKENS / 2], const Ring& ring, int tile) const {
    if (HAS_BLOCK && tile * TOKENS + TOKENS > item.span.paged()) {
      await_own(scores, ring, tile);
    } else {
      await_phase(ring.full_at(), ring.parity);
      if (!HAS_BLOCK && tile * TOKENS + TOKENS > item.span.seen()) clear_behind(ring.values(), tile);
    }
    begin_turn(group);
    ask_scores(scores, queries, ring.keys());
  }

  __device__ __forceinline__ void hide(float (&scores)[TOKENS / 2], int tile) const {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int last = item.span.last_seen(row + half * HALF_ROWS);
#pragma unroll
      for (int eight = 0; eight < TOKENS / 8; ++eight) {
        const int position = tile * TOKENS + eight * 8 + lane % 4 * 2, number = eight * 4 + half * 2;
        if (position > last) scores[number] = -INFINITY_F;
        if (position + 1 > last) scores[number + 1] = -INFINITY_F;
      }
    }
  }

  // Turns the scores of a tile into weights, by the highest so far; what was summed before fades.
  __device__ __forceinline__ void weigh(float (&scores)[TOKENS / 2], const Part& part, int tile, const Edges& edges,
                                        float (&higher)[HALVES], float (&fade)[HALVES]) const {
    if (tile * TOKENS + TOKENS > item.span.seen_from(first_row())) hide(scores, tile);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const float best = edges.at(tile, half) ? NOTHING : part.best[half];
      higher[half] = fmaxf(best, highest(scores, half, scale));
      fade[half] = fade_of(__fsub_rn(best, higher[half]));
      const float offset = __fsub_rn(0.f, higher[half]);
#pragma unroll
      for (int eight = 0; eight < TOKENS / 8; ++eight) {
        const int number = eight * 4 + half * 2;
        scores[number] = power(__fmaf_rn(scores[number], scale, offset));
        scores[number + 1] = power(__fmaf_rn(scores[number + 1], scale, offset));
      }
    }
    // The compiler finds no registers for products in flight where a half keeps its scores.
#pragma unroll
    for (int number = 0; number < TOKENS / 2; ++number)
      if (number % 4 / 2 >= HALVES) scores[number] = 0.f;
  }

  // A half without rows weighs nothing.
  static __device__ __forceinline__ void clear(unsigned (&weights)[TOKENS / 16][4]) {
#pragma unroll
    for (int each = 0; each < TOKENS / 4; ++each) weights[each / 4][each % 4] = kept(0);
  }

  static __device__ __forceinline__ void take(Part& part, unsigned (&weights)[TOKENS / 16][4],
                                              const float (&scores)[TOKENS / 2], const float (&higher)[HALVES],
                                              const float (&fade)[HALVES]) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) part.fade(half, fade[half]), part.best[half] = higher[half];
#pragma unroll
    for (int each = 0; each < TOKENS / 4; ++each)
      if (each % 2 < HALVES) weights[each / 4][each % 4] = pair_of(scores[each * 2], scores[each * 2 + 1]);
  }

  __device__ __forceinline__ void end_split(const Part& part, Part& whole, int tile) const {
    if (ALONE || item.program == 0)
      whole.fold(part);
    else
      ends.leave(part, item, tile - 1, size, row, lane);
  }

  // Ends the splits behind which a tile begins others.
  __device__ __forceinline__ void end_splits(const Part& part, Part& whole, Edges& edges, int tile) const {
    if (edges.alike && edges.at(tile, 0)) end_split(part, whole, tile);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      if (!edges.at(tile, half)) continue;
      if (!edges.alike) whole.fold(part, half);
      edges.next(half);
    }
  }

  // The scores of a tile are computed before the values of the one before it are added, and weighed meanwhile. Something is
  // looked up while the last products run.
  template <typename Look>
  __device__ __forceinline__ void run(Part& part, Ring& ring, const Look& look_up) const {
    Part whole;
    float scores[TOKENS / 2], higher[HALVES], fade[HALVES];
    unsigned weights[TOKENS / 16][4];
    clear(weights);
    part.clear(), whole.clear();
    ask(scores, ring, begin);
    end_products();
    end_turn(group);
    await_products<0>();
    hold(scores);
    Edges edges(item, begin, size, row);
    weigh(scores, part, begin, edges, higher, fade);
    take(part, weights, scores, higher, fade);
#pragma unroll 1
    for (int tile = begin + 1; tile < end_tile; ++tile) {
      const unsigned values = ring.values(), empty = ring.empty_at();
      ring.next();
      ask(scores, ring, tile);
      end_products();
      ask_values(part.sum, weights, own(values));
      end_products();
      end_turn(group);
      add_mass(part.mass, weights);
      await_products<1>();
      hold(scores);
      weigh(scores, part, tile, edges, higher, fade);
      await_products<0>();
      hold(part.sum);
      free_stage(empty, lane);
      end_splits(part, whole, edges, tile);
      take(part, weights, scores, higher, fade);
    }
    ask_values(part.sum, weights, own(ring.values()));
    end_products();
    add_mass(part.mass, weights);
    look_up();
    await_products<0>();
    hold(part.sum);
    free_stage(ring.empty_at(), lane);
    ring.next();
    whole.fold(part);
    part = whole;
  }

  __device__ __forceinline__ void end(const Part& part) const {
    if (ALONE)
      ends.mean(part, item, size, row, lane);
    else
      ends.leave(part, item, end_tile - 1, size, row, lane);
  }
};

// Which row of a warpgroup's a line of its product is: a warp has sixteen lines, eight of each half.
__device__ __forceinline__ int row_of(int line) { return line % 16 / 8 * HALF_ROWS + line / 16 * 8 + line % 8; }

// Rows behind the last one are zero; a warp copies the rows that it multiplies, two at a time. Warpgroups that share rows copy
// some panels each, when all have multiplied those before.
__device__ __forceinline__ void ask_queries(unsigned to, const unsigned short* q, const Ends& ends, const Item& item, int group) {
  constexpr int EIGHTS = COLUMNS * SPREAD / 8, ROWS_EACH = 32 / EIGHTS;
  const int lane = threadIdx.x % 32, eight = (SPREAD > 1 ? 0 : ends.column / 8) + lane % EIGHTS;
  const int in_tile = group % ITEM_GROUPS / COLUMN_GROUPS * GROUP_ROWS, first = threadIdx.x % THREADS / 32 * 16 + lane / EIGHTS;
  if constexpr (COLUMN_GROUPS > 1) sync_threads(1 + GROUPS, GROUPS * THREADS);
#pragma unroll
  for (int part = 0; part < 16 / ROWS_EACH; ++part) {
    const int line = first + part * ROWS_EACH, own = in_tile + line, row = item.span.first_row + in_tile + row_of(line);
    const bool there = row < item.span.rows();
    const unsigned short* from = q + (there ? ends.line(item, row) : 0) * SIZE + eight * 8;
    copy_shared(to + eight / 8 * QUERY_PANEL + own * PANEL_BYTES + ((eight % 8 ^ own % 8) << 4), from, there);
  }
}

__device__ __forceinline__ void await_queries(int group) {
  await_copies();
  if constexpr (COLUMN_GROUPS > 1)
    publish_shared(1 + GROUPS, GROUPS * THREADS);
  else
    publish_shared(1 + group, THREADS);
}

extern "C" __global__ void __cluster_dims__(SPREAD, 1, 1)
    __launch_bounds__(THREADS * GROUPS + (GROUPS > 1 ? THREADS : LOADERS * 32), 1)
    attend(const __grid_constant__ TensorMap map, const unsigned short* q, const int* tables, const long long* lengths,
           const long long* reaches, const int2* ranks, float* partial, float* sums, unsigned short* out, int places, int stride,
           int columns, int pairs, int width, int kv_heads, int programs, int parts, float scale, const unsigned short* block_keys,
           const unsigned short* block_values, int block_sequence, int block_row, int block_head) {
  extern __shared__ unsigned char memory[];
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const int own = group == GROUPS ? warp % 4 / ITEM_LOADERS : group / ITEM_GROUPS;
  const unsigned stages = kept((shared_address(memory) + 1023) & ~1023u), all_queries = stages + ITEMS * STAGES * STAGE;
  const unsigned queries = all_queries + own * QUERY_BYTES, barriers = all_queries + ITEMS * QUERY_BYTES;
  Ring ring{stages + own * STAGES * STAGE, barriers + own * STAGES * 8, barriers + (ITEMS + own) * STAGES * 8};
  Order& order = *reinterpret_cast<Order*>(memory + (barriers + 2 * ITEMS * STAGES * 8 - shared_address(memory)));
  // A long item and a short one share a multiprocessor.
  const int ctas = gridDim.x / SPREAD, cta = blockIdx.x / SPREAD, worker = own ? 2 * ctas - 1 - cta : cta;
  Items items{lengths, reaches, ranks, nullptr,          pairs / kv_heads, kv_heads, columns * BLOCK,
              width,   ALONE ? 1 : programs, worker, ITEMS * ctas};
  if (!RANKED && items.count() > ctas && items.lines() <= SORTED) {
    order.sort(items);
    items.order = order.lines;
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < ITEMS * STAGES; ++stage) {
      barrier_init(barriers + stage * 8, ITEM_LOADERS);
      barrier_init(barriers + (ITEMS * STAGES + stage) * 8, ITEM_GROUPS * THREADS / 32 * SPREAD);
    }
    publish_barriers();
  }
  __syncthreads();
  meet();
  if (group == GROUPS) {
    if constexpr (GROUPS > 1) give_registers<32>();
    load_items(items, ring, &map, tables, stride, places, warp, lane);
    meet();
    return;
  }
  if constexpr (GROUPS > 1) take_registers<232>();
  Lead lead = items.lead(min(items.index(0), items.count() - 1));
  Item next = items.item(lead);
  await_previous();
  const Ends ends{partial,  sums,  out, kv_heads,
                  programs, parts, (SPREAD > 1 ? spread_rank() : group % COLUMN_GROUPS) * COLUMNS,
                  {block_keys, block_values, block_sequence, block_row, block_head}};
  const int in_tile = group % ITEM_GROUPS / COLUMN_GROUPS * GROUP_ROWS;
  if (group == GROUPS - 1) end_turn(group);
  ask_queries(queries, q, ends, next, group);
  for (int round = 0; items.index(round) < items.count(); ++round) {
    const Item item = next;
    const bool more = items.index(round + 1) < items.count();
    const int most = item.most(), least = TOGETHER ? most : item.least();
    const int row = item.span.first_row + in_tile + warp % 4 * 8 + lane / 4;
    await_queries(group);
    for (int size = least; size <= most; size += max(most - least, 1)) {
      const Tiles tiles(item.span, item.program, programs, size);
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
        ask_queries(queries, q, ends, next, group);
      }
      if (!empty) walk.end(part);
    }
  }
  allow_next();
  meet();
}
