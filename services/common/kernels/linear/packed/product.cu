// x[rows, depth] @ weight[lines, depth]^T of bfloat16 rows and a weight of codes with scales, and what follows.
//
// One warp asks for rows and one for codes. Others widen codes to bfloat16 in shared memory, from where warpgroups multiply 64 rows
// each by them. Every sum is one fp32 accumulator in order of depth, so a row has the bits of the other products by the widened
// weight. A CTA takes one tile after the other.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/packed/rings.cuh"
#include "linear/packed/widener.cuh"
#include "linear/persistent/ends.cuh"
#include "linear/persistent/loader.cuh"
#include "linear/persistent/plain.cuh"
#include "linear/persistent/rounded.cuh"
#include "linear/persistent/scales.cuh"

__device__ void load_rows(const Rings& rings, const TensorMap* map, const WorkTiles& tiles) {
  Rows::At at;
  await_previous();
  for (int tile = tiles.first; tile < tiles.count; tile += tiles.apart) {
    const int row = tiles.row(tile);
    for (int step = 0; step < tiles.steps; ++step, at.advance()) {
      rings.rows.await_empty(at);
      expect_bytes(rings.rows.full(at), SUBS * SUB_BYTES * tiles.height);
      load_box(rings.rows.at(at), map, row, step * SUBS, 0, rings.rows.full(at), USED);
    }
  }
}

// Codes come from no kernel before. Lines that several tiles of rows need are left in L2 for the later ones.
__device__ void load_codes(const Rings& rings, const TensorMap* map, const WorkTiles& tiles) {
  Codes::At at;
  const unsigned long long hint = tiles.parts > 1 ? USED : STREAMED;
  for (int tile = tiles.first; tile < tiles.count; tile += tiles.apart) {
    const int line = tiles.line(tile);
    for (int box = 0; box < tiles.steps / PARTS; ++box, at.advance()) {
      rings.codes.await_empty(at);
      expect_bytes(rings.codes.full(at), THICK * LINES * SUB_BYTES);
      load_box(rings.codes.at(at), map, line, 0, box * THICK, rings.codes.full(at), hint);
    }
  }
}

// Where those that multiply are, and where they were a step before, whose products have ended when this one's have begun.
struct Turn {
  Rows::At rows;
  Wide::At wide;

  __device__ __forceinline__ void release(const Rings& rings, int lane) const {
    if (lane == 0) arrive(rings.rows.empty(rows)), arrive(rings.wide.empty(wide));
  }
};

// Multiplies 64 rows by a step's lines. `build.cuh` has mma(sums, x, weight), one instruction of sixteen inputs. The rows of a 64 of
// inputs take `panel` bytes.
__device__ __forceinline__ void multiply(float (&sums)[LINES / 2], const Rings& rings, const Turn& turn, int panel, int group) {
  begin_products();
#pragma unroll
  for (int sub = 0; sub < SUBS; ++sub) {
    const unsigned long long x = descriptor(rings.rows.at(turn.rows) + sub * panel + group * 64 * SUB_BYTES);
    const unsigned long long weight = descriptor(rings.wide.at(turn.wide) + sub * LINES * SUB_BYTES);
#pragma unroll
    for (int part = 0; part < SUB / 16; ++part) mma(sums, x + 2 * part, weight + 2 * part);  // 32 bytes further
  }
  end_products();
}

__device__ __forceinline__ void sum_up(float (&sums)[LINES / 2], const Rings& rings, Turn& turn, const WorkTiles& tiles,
                                       int group, int lane) {
#pragma unroll
  for (int number = 0; number < LINES / 2; ++number) sums[number] = 0.f;
  hold(sums);
  Turn before;
  for (int step = 0; step < tiles.steps; ++step) {
    rings.rows.await_full(turn.rows);
    rings.wide.await_full(turn.wide);
    multiply(sums, rings, turn, tiles.height * SUB_BYTES, group);
    await_products<1>();
    if (step > 0) before.release(rings, lane);
    before = turn;
    turn.rows.advance(), turn.wide.advance();
  }
  await_products<0>();
  hold(sums);
  before.release(rings, lane);
}

extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 64 + WARPS * 32, CTAS)
    product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, const unsigned* scales,
            unsigned short* out, unsigned short* scaled, const unsigned short* stream, const unsigned short* norm,
            const long long* squares, unsigned long long* added, int rows, int height, int outputs, int depth, int groups,
            int apart, int shift, float inverse_depth, float eps, float offset) {
  extern __shared__ unsigned char memory[];
  // From lane 0, so that the compiler knows it to be the same in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0) - GROUPS * 4, lane = threadIdx.x % 32;
  unsigned begin = (shared_address(memory) + 1023) & ~1023u;
  asm volatile("" : "+r"(begin));  // kept, not computed at every use
  const Rings rings(begin);
  Ends ends{out, scaled, stream, norm, squares, added, rows, outputs, inverse_depth, eps, offset};
  const WorkTiles tiles(rows, height, outputs, depth, 0);
  allow_next();
  if (threadIdx.x == 0) {
    rings.rows.begin(1, GROUPS * 4);
    rings.codes.begin(1, Widener::TURN_WARPS * PARTS);
    rings.wide.begin(Widener::TURN_WARPS, GROUPS * 4);
    publish_barriers();
  }
  __syncthreads();

  if (warp == 0) {
    if (elected()) load_rows(rings, &x_map, tiles);
  } else if (warp == 1) {
    if (elected()) load_codes(rings, &weight_map, tiles);
  } else if (warp >= 2) {
    const GroupScales of_lines{scales, groups, apart, shift};
    const int own = warp - 2;
    Widener{rings, of_lines, own / Widener::TURN_WARPS, own % Widener::TURN_WARPS, lane}.run(tiles, outputs);
  } else {
    const int group = (warp + GROUPS * 4) / 4, in_tile = (warp + GROUPS * 4) * 16 + lane / 4;
    await_previous();
    Turn turn;
    for (int tile = tiles.first; tile < tiles.count; tile += tiles.apart) {
      int line = tiles.line(tile), row = tiles.row(tile) + in_tile;
      ends.rows = min(rows, tiles.row(tile) + height);
      unsigned streams[LINES / 4], norms[LINES / 8];
      if constexpr (KIND == ADDED && EARLY) read_beside(ends, row, line, lane, streams, norms);
      float sums[LINES / 2];
      sum_up(sums, rings, turn, tiles, group, lane);
      if constexpr (KIND == PLAIN) {
        end_plain(sums, Scales(), ends, row, line, lane);
      } else {
        float results[LINES / 2];
        apply_all(sums, Scales(), results, lane);
        if constexpr (KIND == GATED) end_gated(results, ends, row, line, lane);
        if constexpr (KIND == ADDED && !EARLY) {
          read_beside(ends, row, line, lane, streams, norms);
          asm volatile("" : "+r"(row), "+r"(line));  // places are computed anew, not kept
        }
        if constexpr (KIND == ADDED) end_added(results, ends, row, line, lane, streams, norms, AtOnce{ends});
      }
    }
  }
}
