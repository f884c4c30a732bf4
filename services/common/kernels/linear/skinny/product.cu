// x[rows, depth] @ weight[lines, depth]^T of up to 32 rows in bfloat16, and what follows the product in a block.
//
// The weight's lines are the left operand, of which a matrix instruction takes 64: of the last tile it multiplies what lies
// behind the band too, and nobody reads that. Every sum is one fp32 accumulator in order of depth, so a row has the bits of
// the other products. CTAs that lead may have bands of another size than those that follow.
//
// `build.cuh` defines ROWS (of x, those behind the last count as zero), BOX (lines that are loaded at a time), KIND (what follows
// the product), LEADING (CTAs that lead), and of them and of those that follow LINES, SUBS and STAGES.

#include "build.cuh"
#include "arithmetic.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/left.cuh"
#include "linear/cuda/ring.cuh"

constexpr int PLAIN = 0, GATED = 1, ADDED = 2, GATES = 3;
constexpr int SUB = 64, SUB_BYTES = SUB * 2;  // 64 numbers are a swizzled row of 128 bytes
constexpr int WARPS = 4;
constexpr int SUMS = ROWS / 2, OWN = ROWS / 4;  // of a thread: sums of a tile, and rows that it has two of the lines of
static_assert(ROWS % 8 == 0 && ROWS <= 32, "rows of a wgmma");

// The place of the `own`-th row's sum for the first of a thread's two lines.
__device__ __forceinline__ int sum_at(int own) { return own / 2 * 4 + own % 2; }

// LINES of the weight that a CTA loads, SUBS (64s of depth in a stage) and STAGES.
template <int LINES, int SUBS, int STAGES>
struct Band {
  static constexpr int OUTPUTS = KIND == GATED ? LINES / 2 : LINES;  // of a CTA
  static constexpr int EIGHTS = (LINES + 7) / 8;                     // the swizzle repeats after eight lines
  static constexpr int TILES = (EIGHTS + 7) / 8;                     // of 64 lines, what a matrix instruction multiplies
  static constexpr int X_SUB = ROWS * SUB_BYTES, W_SUB = EIGHTS * 8 * SUB_BYTES;
  static constexpr int STAGE = SUBS * (X_SUB + W_SUB), W_LOADED = SUBS * LINES * SUB_BYTES;
  static constexpr int ENDERS = EIGHTS < 2 * WARPS ? (EIGHTS + 1) / 2 : WARPS;  // warps that have lines of a tile

  static_assert(KIND != GATED || BOX % 16 == 0, "eight lines of the gate stand beside eight that it gates");
  static_assert(LINES % BOX == 0 && (LINES == BOX || BOX % 8 == 0), "boxes begin where the swizzle does");

  using Ring = StageRing<STAGE, SUBS, X_SUB, W_SUB>;

  // Asks for the tiles of a product: one thread does.
  struct Loader {
    const Ring& ring;
    const TensorMap *x_map, *weight_map;
    int first, present;  // of the lines, and rows

    __device__ void expect(int stage) const { expect_bytes(ring.full_at(stage), SUBS * present * SUB_BYTES + W_LOADED); }

    __device__ void weights(int step, int stage) const {
      for (int sub = 0; sub < SUBS; ++sub) {
        const int depth = (step * SUBS + sub) * SUB;
        for (int line = 0; line < LINES; line += BOX) {
          const unsigned to = ring.weight(stage, sub) + line * SUB_BYTES;
          if constexpr (KIND == GATED)
            load_interleaved(to, weight_map, depth, first / 8 + line / 16, ring.full_at(stage), STREAMED);
          else
            load<false>(to, weight_map, depth, first + line, ring.full_at(stage), 0, STREAMED);
        }
      }
    }

    __device__ void rows(int step, int stage) const {
      for (int sub = 0; sub < SUBS; ++sub)
        load<false>(ring.x(stage, sub), x_map, (step * SUBS + sub) * SUB, 0, ring.full_at(stage), 0, KEPT);
    }

    // Weights do not come from the kernel before, so the ring is filled with them while it drains.
    __device__ void begin(int steps) const {
      const int ahead = steps < STAGES ? steps : STAGES;
      for (int step = 0; step < ahead; ++step) {
        expect(step);
        weights(step, step);
      }
      await_previous();
      for (int step = 0; step < ahead; ++step) rows(step, step);
    }

    __device__ void run(int steps) const {
      begin(steps);
      RingTurn<STAGES> turn;
      for (int step = STAGES; step < steps; ++step) {
        await_phase(ring.empty_at(turn.stage), turn.parity);
        expect(turn.stage);
        rows(step, turn.stage);
        weights(step, turn.stage);
        turn.advance();
      }
    }
  };

  static __device__ __forceinline__ void hold(float (&sums)[TILES][SUMS]) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) ::hold(sums[tile]);
  }

  static __device__ __forceinline__ void multiply(float (&sums)[TILES][SUMS], const Ring& ring, int stage) {
    begin_products();
#pragma unroll
    for (int sub = 0; sub < SUBS; ++sub) {
      const unsigned long long x = descriptor(ring.x(stage, sub)), weight = descriptor(ring.weight(stage, sub));
#pragma unroll
      for (int part = 0; part < SUB / 16; ++part)
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
          mma(sums[tile], weight + tile * (64 * SUB_BYTES / 16) + 2 * part, x + 2 * part);  // 32 bytes further
    }
    end_products();
  }

  // The epilogue: of each tile a thread holds output features r and r + 8, and of each eight rows two neighbours.
  // What its rows wait for is asked for before the products.
  struct Roots {
    float of[OWN];

    __device__ __forceinline__ void read(const Ends& ends, int lane) {
#pragma unroll
      for (int own = 0; own < OWN; ++own) of[own] = root_of(ends, row_at(own, lane));
    }
  };

  static __device__ __forceinline__ void end_gated(const float (&sums)[TILES][SUMS], const Ends& ends, const Roots& roots,
                                                   int first, int lane, int warp) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      const int eight = tile * WARPS + warp, line = first + eight * 8 + lane / 4;
      if (eight >= EIGHTS / 2 || line >= ends.outputs) continue;
#pragma unroll
      for (int own = 0; own < OWN; ++own) {
        const int row = row_at(own, lane);
        const float gate = __fmul_rn(rounded(sums[tile][sum_at(own)]), roots.of[own]);
        const float up = __fmul_rn(rounded(sums[tile][sum_at(own) + 2]), roots.of[own]);
        if (row < ends.rows) ends.out[(size_t)row * ends.outputs + line] = bits_of(gated(gate, up));
      }
    }
  }

  // The stream, or what is gated, at a thread's sums; for a stream the norm at its lines too.
  struct Beside {
    unsigned short stream[TILES * 2][OWN], norm[TILES * 2];

    __device__ __forceinline__ void read(const Ends& ends, int first, int lane, int warp) {
#pragma unroll
      for (int part = 0; part < TILES * 2; ++part) {
        const int in_band = part / 2 * 64 + warp * 16 + part % 2 * 8 + lane / 4, line = first + in_band;
        const bool inside = in_band < LINES && line < ends.outputs;
        norm[part] = KIND == ADDED && inside ? ends.norm[line] : 0;
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
          const int row = row_at(own, lane);
          stream[part][own] = inside && row < ends.rows ? ends.stream[(size_t)row * ends.outputs + line] : 0;
        }
      }
    }
  };

  // Stores a product of a norm, or what it gates.
  static __device__ __forceinline__ void end_normed(const float (&sums)[TILES][SUMS], const Ends& ends, const Roots& roots,
                                                    const Beside& beside, int first, int lane, int warp) {
#pragma unroll
    for (int part = 0; part < TILES * 2; ++part) {
      const int in_band = part / 2 * 64 + warp * 16 + part % 2 * 8 + lane / 4, line = first + in_band;
      if (in_band >= LINES || line >= ends.outputs) continue;
#pragma unroll
      for (int own = 0; own < OWN; ++own) {
        const int row = row_at(own, lane);
        float result = __fmul_rn(rounded(sums[part / 2][sum_at(own) + part % 2 * 2]), roots.of[own]);
        if constexpr (KIND == GATES) result = times_sigmoid(number(beside.stream[part][own]), result);
        if (row < ends.rows) ends.out[(size_t)row * ends.outputs + line] = bits_of(result);
      }
    }
  }

  static __device__ __forceinline__ void end_added(const float (&sums)[TILES][SUMS], const Ends& ends, const Beside& beside,
                                                   int first, int lane, int warp) {
    long long totals[OWN] = {};
#pragma unroll
    for (int part = 0; part < TILES * 2; ++part) {
      const int in_band = part / 2 * 64 + warp * 16 + part % 2 * 8 + lane / 4, line = first + in_band;
      if (in_band >= LINES || line >= ends.outputs) continue;
      float norm = number(beside.norm[part]);
      if (ends.offset != 0.f) norm = __fadd_rn(norm, ends.offset);
#pragma unroll
      for (int own = 0; own < OWN; ++own) {
        const int row = row_at(own, lane);
        const float result = rounded(sums[part / 2][sum_at(own) + part % 2 * 2]);
        const float wide = rounded(__fadd_rn(result, number(beside.stream[part][own])));
        if (row >= ends.rows) continue;
        const size_t place = (size_t)row * ends.outputs + line;
        ends.out[place] = bits_of(wide);
        ends.scaled[place] = bits_of(__fmul_rn(wide, norm));
        totals[own] += square(wide);
      }
    }
    if (warp >= ENDERS) return;
    // Integers add up to the same sum in any order. A CTA adds once: additions to the same few places go one by one.
    __shared__ long long totals_of[ENDERS][ROWS];
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
#pragma unroll
      for (int apart = 4; apart < 32; apart *= 2) totals[own] += __shfl_xor_sync(~0u, totals[own], apart);
      if (lane < 4) totals_of[warp][row_at(own, lane)] = totals[own];
    }
    asm volatile("bar.sync 1, %0;" ::"n"(ENDERS * 32) : "memory");
    if (warp > 0 || lane >= ends.rows) return;
    long long total = 0;
#pragma unroll
    for (int each = 0; each < ENDERS; ++each) total += totals_of[each][lane];
    atomicAdd(ends.added + lane, (unsigned long long)total);
  }

  // The first line of the band is given.
  static __device__ __forceinline__ void run(const TensorMap& x_map, const TensorMap& weight_map, const Ends& ends, int depth,
                                             int first) {
    extern __shared__ unsigned char memory[];
    // From lane 0, so that the compiler knows it to be the same in a warp.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, steps = depth / (SUBS * SUB);
    unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
    asm volatile("" : "+r"(tiles));  // kept, not computed at every use
    const Ring ring{tiles + 1024, tiles, tiles + STAGES * 8};
    begin_ring<STAGES, 1>(ring, WARPS);

    if (warp == WARPS) {
      const Loader loader{ring, &x_map, &weight_map, first, ends.rows};
      if (elected()) loader.run(steps);
      return;
    }
    await_previous();
    // Not sooner: of kernels that start early one after the other, some read what an earlier one has written before they wait.
    allow_next();
    Roots roots;
    Beside beside;
    if constexpr (KIND == ADDED || KIND == GATES) beside.read(ends, first, lane, warp);
    if constexpr (KIND != ADDED) roots.read(ends, lane);
    float sums[TILES][SUMS];
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int at = 0; at < SUMS; ++at) sums[tile][at] = 0.f;
    hold(sums);
    RingTurn<STAGES> turn;
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      await_phase(ring.full_at(turn.stage), turn.parity);
      multiply(sums, ring, turn.stage);
      await_products<1>();
      // Nobody waits for the last stages to be empty.
      if (step > 0 && step - 1 + STAGES < steps && lane == 0) arrive(ring.empty_at(before));
      before = turn.stage;
      turn.advance();
    }
    await_products<0>();
    hold(sums);
    if constexpr (KIND == PLAIN || KIND == GATES) end_normed(sums, ends, roots, beside, first, lane, warp);
    if constexpr (KIND == GATED) end_gated(sums, ends, roots, first, lane, warp);
    if constexpr (KIND == ADDED) end_added(sums, ends, beside, first, lane, warp);
  }
};

using Leading = Band<LEADING_LINES, LEADING_SUBS, LEADING_STAGES>;
using Following = Band<FOLLOWING_LINES, FOLLOWING_SUBS, FOLLOWING_STAGES>;

extern "C" __global__ void __launch_bounds__(WARPS * 32 + 32, 1)
    product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, unsigned short* out,
            unsigned short* scaled, const unsigned short* stream, const unsigned short* norm, const long long* squares,
            unsigned long long* added, int rows, int outputs, int depth, float inverse_depth, float eps, float offset) {
  const Ends ends{out, scaled, stream, norm, squares, added, rows, outputs, inverse_depth, eps, offset};
  const int cta = blockIdx.x, behind = cta - LEADING;
  if (LEADING > 0 && behind < 0)
    Leading::run(x_map, weight_map, ends, depth, cta * Leading::OUTPUTS);
  else
    Following::run(x_map, weight_map, ends, depth, LEADING * Leading::OUTPUTS + behind * Following::OUTPUTS);
}
