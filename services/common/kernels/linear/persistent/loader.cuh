// Who asks for the tiles of a product: one warp, or the first of several warpgroups beside its part of the products.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "linear/persistent/sizes.cuh"

// The tiles of a cluster: every so many-th. Those of the same lines follow one another, so that what runs together reads few.
// Of a tile's rows `height` are used.
struct WorkTiles {
  int height, parts, count, first, apart, steps, rank;

  __device__ WorkTiles(int rows, int height, int outputs, int columns, int rank)
      : height(height),
        parts((rows + height * SHARE - 1) / (height * SHARE)),
        count(parts * ((outputs + BAND * ACROSS - 1) / (BAND * ACROSS))),
        first(int(blockIdx.x) / CLUSTER),
        apart(int(gridDim.x) / CLUSTER),
        steps(columns / (SUBS * SUB)),
        rank(rank) {}

  __device__ int line(int tile) const { return (tile / parts * ACROSS + (ACROSS > 1 ? rank : 0)) * BAND; }
  __device__ int row(int tile) const { return (tile % parts * SHARE + (SHARE > 1 ? rank : 0)) * height; }
  // Steps of all of them.
  __device__ int total() const { return (count - first + apart - 1) / apart * steps; }
};

struct TileLoader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  const WorkTiles& tiles;
  int outputs;
  int tile, line, row, step;

  __device__ void take(int next) { tile = next, line = tiles.line(next), row = tiles.row(next), step = 0; }

  __device__ void advance() {
    if (++step == tiles.steps) take(tile + tiles.apart);
  }

  __device__ void weights(int into) const {
    // Lines that several tiles of rows need are left for the later ones.
    const unsigned long long hint = tiles.parts > 1 ? USED : STREAMED;
    const int row_part = SHARE > 1 ? tiles.rank : 0;
    expect_bytes(ring.full_at(into), SUBS * tiles.height * SUB_BYTES + W_LOADED);
#pragma unroll
    for (int part = 0; part < OWN_SUBS; ++part) {
      const int sub = (SUBS % SHARE ? 0 : row_part * OWN_SUBS) + part, cut = CUTS > 1 ? row_part * LINE_BOX : 0;
#pragma unroll
      for (int own = 0; own < OWN_HALVES; ++own) {
        const int half = (OWN_HALVES < HALVES ? row_part : 0) + own;
        load<(SHARE > 1)>(ring.weight(into, sub) + half * HALF * SUB_BYTES + cut * SUB_BYTES, weight_map,
                          (step * SUBS + sub) * SUB, line + half * outputs + cut, ring.full_at(into), EVERY_CTA, hint);
      }
    }
  }

  __device__ void rows(int into) const {
    const int first = ACROSS > 1 ? tiles.rank * (tiles.height / ACROSS) : 0;
#pragma unroll
    for (int sub = 0; sub < SUBS; ++sub)
      load<(ACROSS > 1)>(ring.x(into, sub) + first * SUB_BYTES, x_map, (step * SUBS + sub) * SUB, row + first,
                         ring.full_at(into), EVERY_CTA, USED);
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
    RingTurn<STAGES> turn;
    for (int number = STAGES; number < total; ++number, turn.advance()) next(turn.stage, turn.parity);
  }
};
