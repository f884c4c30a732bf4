// Warps that widen codes to the numbers of bfloat16 that these mean, in shared memory.
//
// `build.cuh` defines WARPS of them, which have steps in TURNS, and FINE: lines have scales of their own, else eight neighbours
// share one.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/packed/e4m3.cuh"
#include "linear/packed/int4.cuh"
#include "linear/packed/rings.cuh"
#include "linear/persistent/loader.cuh"

template <int>
struct Format {
  using Scale = E4m3;
};

template <>
struct Format<4> {
  using Scale = Int4;
};

// What the codes of lines are multiplied by: of each 128 inputs, or of all of them.
struct GroupScales {
  const unsigned* of_groups;
  int groups, apart, shift;  // lines that share one are 1 << shift
};

struct Widener {
  static constexpr int TURN_WARPS = WARPS / TURNS, THREADS = WARPS * 32;
  static constexpr int EIGHTS = LINES / 8, EACH = (EIGHTS + TURN_WARPS - 1) / TURN_WARPS;
  static constexpr int GRAIN = FINE ? 1 : 8, GRAINS = LINES / GRAIN;  // lines of a scale, and scales of a tile's 128 inputs
  static constexpr int PIECE = 64 * 8 / BITS;                         // inputs of a lane's sixteen bytes
  static constexpr int TAKE = STEP < PIECE ? STEP : PIECE, TAKES = STEP / TAKE, WORDS = TAKE * BITS / 128;
  static_assert(WARPS % TURNS == 0 && STEP % TAKE == 0, "all warps of a turn widen a step");

  const Rings& rings;
  const GroupScales& scales;
  int turn, warp, lane;

  static __device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

  // Keeps the scales of a tile's lines. All are asked for at once. Of no line there are zeros.
  __device__ void keep(int line, int outputs) const {
    constexpr int TOGETHER = FINE ? 4 : 1, A_GROUP = GRAINS / TOGETHER, BYTES = TOGETHER * 4;
    meet();  // those of the tile before are not needed any more
#pragma unroll 4
    for (int at = (turn * TURN_WARPS + warp) * 32 + lane; at < scales.groups * A_GROUP; at += THREADS) {
      const int in_tile = at % A_GROUP * GRAIN * TOGETHER, own = line + in_tile % HALF;
      const int place = (own + in_tile / HALF * outputs) >> scales.shift;
      const unsigned* from = scales.of_groups + (own < outputs ? (size_t)(at / A_GROUP) * scales.apart + place : 0);
      copy<BYTES>(rings.behind + at * BYTES, from, own < outputs);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    meet();
  }

  template <int BYTES>
  static __device__ __forceinline__ void copy(unsigned to, const unsigned* from, bool known) {
    if constexpr (BYTES == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(known ? 16 : 0) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(known ? 4 : 0) : "memory");
  }

  static __device__ __forceinline__ unsigned load_one(unsigned from) {
    unsigned word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
  }

  static __device__ __forceinline__ void load_words(unsigned from, unsigned (&words)[WORDS]) {
    if constexpr (WORDS == 4)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[WORDS - 1])
                   : "r"(from)
                   : "memory");
    else
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(from) : "memory");
  }

  // Widens the codes of a step. A lane takes sixteen bytes of a line at a time, as `packed_weight` deals them, and stores pairs of
  // neighbours where the swizzle has them: those of a warp lie in all banks.
  __device__ __forceinline__ void widen(unsigned codes, unsigned wide, int step) const {
    // Lines of the lanes that read at a time are four apart, so that the swizzle keeps them in other banks.
    const int line = lane / 8 + lane / 4 % 2 * 4;
    const unsigned from = codes + (warp * 8 + line) * SUB_BYTES, to = wide + (warp * 8 + line) * SUB_BYTES;
    const unsigned chunk = (lane % 4 ^ line) * 16, place = line * 16 + lane % 4 * 4;
    const int first = step % PARTS * STEP;  // input of the box
#pragma unroll
    for (int take = 0; take < TAKES; ++take) {
      const int input = first + take * TAKE, group = scales.groups > 1 ? (step * STEP + take * TAKE) / 128 : 0;
      // Of each line a row of codes after the other, halves of a row, and words of a lane's sixteen bytes.
      const unsigned piece = input / PIECE / 2 * (LINES * SUB_BYTES) + input % PIECE * BITS / 32;
      const unsigned half = input / PIECE % 2 * 64;
      unsigned words[EACH][WORDS], numbers[EACH];
#pragma unroll
      for (int each = 0; each < EACH; ++each) {
        const int eight = warp + each * TURN_WARPS;
        if (EIGHTS % TURN_WARPS && eight >= EIGHTS) continue;
        load_words(from + each * TURN_WARPS * 8 * SUB_BYTES + piece + (chunk ^ half), words[each]);
        numbers[each] = load_one(rings.behind + (group * GRAINS + (FINE ? eight * 8 + line : eight)) * 4);
      }
#pragma unroll
      for (int each = 0; each < EACH; ++each) {
        if (EIGHTS % TURN_WARPS && warp + each * TURN_WARPS >= EIGHTS) continue;
        typename Format<BITS>::Scale scale;
        scale.open(numbers[each]);
#pragma unroll
        for (int sixteen = 0; sixteen < TAKE / 16; ++sixteen) {
          unsigned pairs[2];
          scale.widen(words[each][sixteen * BITS / 8], sixteen % (8 / BITS), pairs);
          const int sub = (take * TAKE + sixteen * 16) / SUB;
#pragma unroll
          for (int later = 0; later < 2; ++later)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + (sub * LINES + each * TURN_WARPS * 8) * SUB_BYTES +
                                                         (place ^ (sixteen % 4 * 2 + later) * 16)),
                         "r"(pairs[later])
                         : "memory");
        }
      }
    }
  }

  // Widens all steps of all tiles. The matrix units see what it stored when it says that it did.
  __device__ void run(const WorkTiles& tiles, int outputs) const {
    Codes::At box;
    Wide::At at;
    int wait = turn;  // steps until the next one of this turn
    for (int tile = tiles.first; tile < tiles.count; tile += tiles.apart) {
      keep(tiles.line(tile), outputs);
      for (int step = 0; step < tiles.steps; ++step) {
        if (wait-- == 0) {
          wait = TURNS - 1;
          rings.codes.await_full(box);
          rings.wide.await_empty(at);
          widen(rings.codes.at(box), rings.wide.at(at), step);
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          __syncwarp();
          if (lane == 0) arrive(rings.wide.full(at)), arrive(rings.codes.empty(box));
        }
        at.advance();
        if ((step + 1) % PARTS == 0) box.advance();
      }
    }
  }
};
