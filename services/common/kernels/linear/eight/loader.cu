// Who asks for the tiles of a product: one warp, or the first of several warpgroups beside its part of the products.

// The tiles of a cluster: every so many-th. Those of the same lines follow one another, so that what runs together reads few.
struct Tiles {
  int parts, count, first, apart, steps, rank;

  __device__ Tiles(int rows, int outputs, int depth, int rank)
      : parts((rows + ROWS * SHARE - 1) / (ROWS * SHARE)), count(parts * ((outputs + BAND - 1) / BAND)),
        first(int(blockIdx.x) / SHARE), apart(int(gridDim.x) / SHARE), steps(depth / (SUBS * SUB)), rank(rank) {}

  __device__ int line(int tile) const { return tile / parts * BAND; }
  __device__ int row(int tile) const { return (tile % parts * SHARE + rank) * ROWS; }
  // Steps of all of them.
  __device__ int total() const { return (count - first + apart - 1) / apart * steps; }
};

struct Loader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  const Tiles& tiles;
  int outputs;
  int tile, line, row, step;

  __device__ void take(int next) { tile = next, line = tiles.line(next), row = tiles.row(next), step = 0; }

  __device__ void advance() {
    if (++step == tiles.steps) take(tile + tiles.apart);
  }

  __device__ void weights(int into) const {
    // Lines that several tiles of rows need are left for the later ones.
    const unsigned long long hint = tiles.parts > 1 ? USED : STREAMED;
    expect_bytes(ring.full_at(into), LOADED);
#pragma unroll
    for (int part = 0; part < SUBS / SHARE; ++part) {
      const int sub = tiles.rank * (SUBS / SHARE) + part;
#pragma unroll
      for (int half = 0; half < HALVES; ++half)
        load<(SHARE > 1)>(ring.weight(into, sub) + half * HALF * SUB_BYTES, weight_map, (step * SUBS + sub) * SUB,
                          line + half * outputs, ring.full_at(into), (1u << SHARE) - 1, hint);
    }
  }

  __device__ void rows(int into) const {
#pragma unroll
    for (int sub = 0; sub < SUBS; ++sub)
      load<false>(ring.x(into, sub), x_map, (step * SUBS + sub) * SUB, row, ring.full_at(into), 0, USED);
  }

  // Weights do not come from the kernel before, so the first ones are asked for while it drains.
  __device__ void begin(int total) {
    const int ahead = total < STAGES ? total : STAGES;
    take(tiles.first);
    for (int into = 0; into < ahead; ++into, advance()) weights(into);
    await_previous();
    take(tiles.first);
    for (int into = 0; into < ahead; ++into, advance()) rows(into);
  }

  // Loads the next step as soon as the one before it in its stage was multiplied.
  __device__ void next(int into, unsigned parity) {
    await_phase(ring.empty_at(into), parity);
    weights(into);
    rows(into);
    advance();
  }

  __device__ void run(int total) {
    begin(total);
    int into = 0;
    unsigned parity = 0;
    for (int number = STAGES; number < total; ++number) {
      next(into, parity);
      if (++into == STAGES) into = 0, parity ^= 1;
    }
  }
};
