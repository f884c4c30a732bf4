// Rings in shared memory through which rows, codes, and what codes are widened to come to those that multiply.
//
// `build.cuh` defines ROWS of a tile and how many of them are HELD, SUBS (64s of inputs in a step), STAGES of rows, BITS of a code,
// BOXES of codes, THICK (swizzled rows of a line's codes in a box), and WIDES: steps that are widened at once.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "tma.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/persistent/sizes.cuh"

constexpr int STEP = SUBS * SUB;                                       // inputs of a step
constexpr int BOX = THICK * SUB_BYTES * 8 / BITS, PARTS = BOX / STEP;  // inputs of a box of codes, and steps
static_assert(BOX % STEP == 0, "a box has whole steps");

// Places of so many bytes, and two barriers for each: full, and empty again.
template <int PLACES, int BYTES>
struct Places {
  static constexpr int SIZE = PLACES * BYTES, BARRIERS = PLACES * 16;
  unsigned memory, barriers;

  // Where somebody is in a ring, and the parity of its barriers there.
  struct At {
    int place = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
      if (++place == PLACES) place = 0, parity ^= 1;
    }
  };

  __device__ __forceinline__ unsigned at(const At& at) const { return memory + at.place * BYTES; }
  __device__ __forceinline__ unsigned full(const At& at) const { return barriers + at.place * 8; }
  __device__ __forceinline__ unsigned empty(const At& at) const { return barriers + (PLACES + at.place) * 8; }
  __device__ __forceinline__ void await_full(const At& at) const { await_phase(full(at), at.parity); }
  __device__ __forceinline__ void await_empty(const At& at) const { await_phase(empty(at), at.parity ^ 1); }

  // A place is full, or empty, after so many arrivals.
  __device__ __forceinline__ void begin(int filled, int emptied) const {
    for (int place = 0; place < PLACES; ++place) {
      barrier_init(barriers + place * 8, filled);
      barrier_init(barriers + (PLACES + place) * 8, emptied);
    }
  }
};

using Rows = Places<STAGES, SUBS * HELD * SUB_BYTES>;
using Codes = Places<BOXES, THICK * LINES * SUB_BYTES>;
using Wide = Places<WIDES, SUBS * LINES * SUB_BYTES>;
// A matrix instruction reads 64 rows, held or not, from what lies behind.
static_assert((ROWS - HELD) * SUB_BYTES <= Codes::SIZE + Wide::SIZE, "of memory that there is");

struct Rings {
  Rows rows;
  Codes codes;
  Wide wide;
  unsigned behind;  // of them

  __device__ __forceinline__ explicit Rings(unsigned memory)
      : rows{memory, memory + Rows::SIZE + Codes::SIZE + Wide::SIZE},
        codes{memory + Rows::SIZE, rows.barriers + Rows::BARRIERS},
        wide{codes.memory + Codes::SIZE, codes.barriers + Codes::BARRIERS},
        behind(wide.barriers + Wide::BARRIERS) {}
};

// Loads a box of four dimensions, whose first begins at 0, and counts its bytes at a barrier.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap* map, int line, int third, int fourth, unsigned barrier,
                                         unsigned long long hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(map), "r"(0), "r"(line), "r"(third), "r"(fourth), "r"(barrier), "l"(hint)
      : "memory");
}
