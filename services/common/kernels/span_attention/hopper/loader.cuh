// Some warps ask for keys and as many for values: each lane for a box, which is a piece of a panel.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "span_attention/hopper/instructions.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/span.cuh"

// A warp looks up the blocks of several tiles at once: each lane that of a box in one of them.
constexpr int TILES_AHEAD = 32 / BOXES;

// Which box that is, in which of the tiles. The first lanes load theirs, in all tiles.
struct Box {
  int kind, panel, piece, ahead;  // keys or values, of those that this CTA loads

  __device__ __forceinline__ Box(int warp, int lane) {
    const int box = warp % ITEM_LOADERS * BOXES + lane % BOXES;
    kind = box / (PANELS_EACH * PIECES), panel = box / PIECES % PANELS_EACH, piece = box % PIECES;
    ahead = min(lane / BOXES, TILES_AHEAD - 1);
  }
  __device__ __forceinline__ int panel_of_head() const { return SPREAD > 1 ? spread_rank() : panel; }
  // Of the first tiles, before it is known how many there are.
  __device__ __forceinline__ int first_position() const { return ahead * TOKENS + piece * PIECE; }
  __device__ __forceinline__ int first_block(const int* table, int room) const {
    return table[min(first_position(), room - 1) / BLOCK];
  }
};

// Exponents of codes, and where those of the first stage go.
struct Exponents {
  const signed char* from;
  unsigned to;
};

struct KvLoader {
  const TensorMap* map;
  const int* table;
  Span span;
  Box box;
  int column, first_line, offset, lane;  // of a lane's panel, where it begins, and where in a stage
  int final;                             // positions before it were written before the kernel in front of this one began
  Exponents exponents;

  __device__ __forceinline__ KvLoader(const TensorMap* map, const int* table, const Item& item, const Box& box, int places,
                                      int lane, bool side_by_side, const Exponents& exponents = {})
      : map(map),
        table(table),
        span(item.span),
        box(box),
        column(item.head * (CODES ? PANEL : SIZE) + box.panel_of_head() * PANEL),
        first_line(box.kind * places),
        offset(box.kind * (CODES ? CODE_TILE : TILE_BYTES) + (box.kind ? box.panel : box.panel_of_head()) * HALF_TILE),
        lane(lane),
        final(side_by_side ? 0 : item.span.length),
        exponents(exponents) {}

  // Whether there is anything to load: a drafter's block may begin a tile.
  __device__ __forceinline__ bool paged(int tile) const { return !HAS_BLOCK || tile * TOKENS < span.paged(); }
  // Past the last position its block is read again: others may not be there.
  __device__ __forceinline__ int position(int tile) const { return min(tile * TOKENS + box.piece * PIECE, span.paged() - 1); }
  // Of the tiles from one on; `first` may be known.
  __device__ __forceinline__ int look_up(int tile, int end, int first) const {
    const int own = tile + box.ahead;
    if (own >= end || !paged(own)) return 0;
    return tile == 0 && position(own) == box.first_position() ? first : table[position(own) / BLOCK];
  }

  // Exponents of all heads of a tile, sixteen a lane at once: copies of pieces would be asked for one after another. A lane arrives
  // when its own are there.
  __device__ __forceinline__ void copy_exponents(const LoadRing& ring, int tile, int block) const {
    constexpr int OF_PIECE = PIECE * KV_HEADS;
    const unsigned to = exponents.to + (ring.stage * 2 + box.kind) * EXPONENT_TILE;
#pragma unroll
    for (int first = 0; first < EXPONENT_TILE; first += 32 * 16) {
      const int own = first + lane * 16, piece = min(own / OF_PIECE, PIECES - 1);
      const int position = min(tile * TOKENS + piece * PIECE, span.paged() - 1);
      const int line = first_line + __shfl_sync(~0u, block, piece) * BLOCK + position % BLOCK / PIECE * PIECE;
      if (own < EXPONENT_TILE) copy_sixteen(to + own, exponents.from + (size_t)line * KV_HEADS + own % OF_PIECE, true);
    }
    arrive_with_copies(ring.full_at());
  }

  __device__ __forceinline__ void ask(const LoadRing& ring, int tile, int block) const {
    constexpr int LINE_BYTES = PANEL_BYTES + (CODES && !LEFT ? KV_HEADS : 0);
    const bool shares = SPREAD > 1 && box.kind == 0;  // to all CTAs of a cluster
    if (lane == 0) expect_bytes(ring.full_at(), paged(tile) ? BOXES * PIECE * LINE_BYTES * (shares ? SPREAD : 1) : 0);
    __syncwarp();
    if constexpr (LEFT) copy_exponents(ring, tile, block);
    if (lane >= BOXES || !paged(tile)) return;
    const unsigned to = ring.keys() + offset + box.piece * PIECE * PANEL_BYTES;
    const int line = first_line + block * BLOCK + position(tile) % BLOCK / PIECE * PIECE;
    if (shares)
      load<true>(to, map, column, line, ring.full_at(), (1u << SPREAD) - 1, USED);
    else
      load<false>(to, map, column, line, ring.full_at(), 0, ALONE ? USED : STREAMED);
    if constexpr (CODES && !LEFT)
      load_bytes(exponents.to + (ring.stage * 2 + box.kind) * EXPONENT_TILE + box.piece * PIECE * KV_HEADS,
                 exponents.from + (size_t)line * KV_HEADS, PIECE * KV_HEADS, ring.full_at());
  }
};

// What a warp that loads knows from one item to the next. The kernel in front of this one leaves the rows of all spans: their own,
// and where they lie side by side those of earlier pieces too.
struct Loading {
  bool waited = false, around = false;

  // There are no keys, or no values, in a stage.
  __device__ __forceinline__ void pass(LoadRing& ring, int lane) {
    if (around) await_phase(ring.empty_at(), ring.parity ^ 1);
    if (lane == 0) arrive(ring.full_at());
    ring.next();
    around |= ring.stage == 0;
  }

  __device__ __forceinline__ void load(const KvLoader& loader, const Item& item, LoadRing& ring, int programs, int first) {
    const int most = item.most(), least = TOGETHER ? most : item.least();
    for (int size = least; size <= most; size += max(most - least, 1)) {
      const SplitTiles tiles(item.span, item.program, programs, size);
      int blocks = loader.look_up(tiles.begin, tiles.end, first), next = 0;
      const int skew = loader.box.kind * SKEW, behind = tiles.end + (tiles.begin < tiles.end ? SKEW : 0);
      for (int turn = tiles.begin; turn < behind; ++turn) {
        const int tile = turn - skew;
        if (SKEW > 0 && (tile < tiles.begin || tile >= tiles.end)) {
          pass(ring, loader.lane);
          continue;
        }
        const int ahead = (tile - tiles.begin) % TILES_AHEAD;
        if (ahead == 0) {
          if (tile > tiles.begin) blocks = next;
          next = loader.look_up(tile + TILES_AHEAD, tiles.end, first);
        }
        if (around) await_phase(ring.empty_at(), ring.parity ^ 1);
        if (!waited && tile * TOKENS + TOKENS > loader.final) {
          await_previous();
          waited = true;
        }
        loader.ask(ring, tile, __shfl_sync(~0u, blocks, ahead * BOXES + loader.lane % BOXES));
        ring.next();
        around |= ring.stage == 0;
      }
    }
  }
};

// The blocks of the first item's first tiles are known already.
__device__ __forceinline__ void load_items(const Items& items, LoadRing ring, const TensorMap* map, const int* tables,
                                           int stride, int places, const Box& box, Lead lead, int first, int lane,
                                           bool side_by_side, const Exponents& exponents = {}) {
  Loading loading;
  for (int round = 0; items.index(round) < items.count(); ++round) {
    if (round > 0) {
      lead = items.lead(items.index(round));
      first = box.first_block(tables + (size_t)lead.sequence * stride, items.room);
    }
    const Item item = items.item(lead);
    const KvLoader loader(map, tables + (size_t)lead.sequence * stride, item, box, places, lane, side_by_side, exponents);
    loading.load(loader, item, ring, items.programs, first);
  }
}
