// Some warps ask for keys and as many for values: each lane for its piece of a panel.

struct Loader {
  const TensorMap* map;
  const int* table;
  Span span;
  int column, first_line, offset, lane;  // of its panels of keys or values, where they begin, and where in a stage
  bool shares;                           // they go to all CTAs of a cluster

  __device__ __forceinline__ bool loads() const { return lane < LOADED_PANELS * PIECES; }
  __device__ __forceinline__ int panel() const { return lane / PIECES; }
  // Whether there is anything to load: a drafter's block may begin a tile.
  __device__ __forceinline__ bool paged(int tile) const { return !HAS_BLOCK || tile * TOKENS < span.paged(); }
  // Past the last position its block is read again: others may not be there.
  __device__ __forceinline__ int position(int tile) const {
    return min(tile * TOKENS + lane % PIECES * PIECE, span.paged() - 1);
  }
  __device__ __forceinline__ int block_of(int tile) const {
    return loads() && paged(tile) ? table[position(tile) / BLOCK] : 0;
  }

  __device__ __forceinline__ void ask(const Ring& ring, int tile, int block) const {
    if (lane == 0) expect_bytes(ring.full_at(), paged(tile) ? LOADED_PANELS * HALF_TILE * (shares ? SPREAD : 1) : 0);
    __syncwarp();
    if (!loads() || !paged(tile)) return;
    const unsigned to = ring.keys() + offset + panel() * HALF_TILE + lane % PIECES * PIECE * PANEL_BYTES;
    const int line = first_line + block * BLOCK + position(tile) % BLOCK / PIECE * PIECE;
    if (SPREAD > 1 && shares)
      load<true>(to, map, column, line, ring.full_at(), (1u << SPREAD) - 1, USED);
    else
      load<false>(to, map, column + panel() * PANEL, line, ring.full_at(), 0, ALONE ? USED : STREAMED);
  }
};

// Positions before the span were final before the kernel in front of this one, which leaves the span's own.
__device__ __forceinline__ void load_items(const Items& items, Ring ring, const TensorMap* map, const int* tables, int stride,
                                           int places, int warp, int lane) {
  const int first = warp % ITEM_LOADERS * LOADED_PANELS * SPREAD + spread_rank();
  bool waited = false, around = false;
  for (int round = 0; round < items.rounds(); ++round) {
    if (items.index(round) >= items.count()) break;
    const Item item = items.at(items.index(round));
    const Loader loader{map, tables + (size_t)item.sequence * stride, item.span, item.head * SIZE + first % PANELS * PANEL,
                        first / PANELS * places, first * HALF_TILE, lane, first < PANELS};
    const int most = item.most(), least = TOGETHER ? most : item.least();
    for (int size = least; size <= most; size += max(most - least, 1)) {
      const Tiles tiles(item.span, item.program, items.programs, size);
      int block = tiles.begin < tiles.end ? loader.block_of(tiles.begin) : 0;
      for (int tile = tiles.begin; tile < tiles.end; ++tile) {
        const int after = tile + 1 < tiles.end ? loader.block_of(tile + 1) : 0;
        if (around) await_phase(ring.empty_at(), ring.parity ^ 1);
        if (!waited && tile * TOKENS + TOKENS > item.span.length) {
          await_previous();
          waited = true;
        }
        loader.ask(ring, tile, block);
        ring.next();
        around |= ring.stage == 0;
        block = after;
      }
    }
  }
}
