// How warpgroups multiply lines of a packed weight, widened in registers, as the left operand of `wgmma`.
//
// `build.cuh` defines BATCH (instructions that wait for one another no more than once) and mma(sums, lines, rows): one
// instruction of 64 lines, sixteen inputs and X_ROWS.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "cluster.cuh"
#include "wgmma.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/packed/stages.cuh"

// Few rows are multiplied by `mma.sync`, with operands and sums in the same places. An instruction of `wgmma` keeps a multiprocessor's
// warps from widening while it takes its lines from registers: some 25 cycles, whatever the rows.
constexpr bool FEW = X_ROWS <= 32;

// Eights of lines of a warp. Where it has one the other eight of an instruction are any numbers, multiplied for nobody.
constexpr bool ALONE = FEW ? X_ROWS <= 16 && TILE_LINES <= 96 : TILE_LINES <= 32;
constexpr int PARTS = KIND == GATED || !ALONE ? 2 : 1;
constexpr int DEPTH = BATCH * 16, BATCHES = SUBS * SUB / DEPTH;  // inputs of a batch, and batches of a stage
constexpr int TAKE = 64 * PIECES,
              TAKES = DEPTH < TAKE ? 1 : DEPTH / TAKE;  // inputs of a lane's sixteen bytes, and such of a batch
constexpr int TURNS = BATCHES % 2 == 0 ? 1 : 2;         // stages after which all places are in turn again
static_assert(WARPS == (FEW ? (TILE_LINES + 8 * PARTS - 1) / (8 * PARTS) : (TILE_LINES + 63) / 64 * 4 * (1 + PAIRED)) &&
                  SUBS * SUB % DEPTH == 0,
              "whole instructions and batches");
static_assert(DEPTH % 64 == 0 && GROUP % DEPTH == 0, "a batch has one scale of a line");

using Sums = float[X_ROWS / 2];

// Which warp of those with other lines this is: where warpgroups are paired two of them have the same.
__device__ __forceinline__ int place_of(int warp) { return PAIRED ? warp / 8 * 4 + warp % 4 : warp; }

// The eight lines of a CTA that a warp has in a part, counted in lines. Those of a gate stand beside those that it gates.
__device__ __forceinline__ int eight_of(int place, int part) {
  if (FEW) return (place * PARTS + part) * 8;
  return place / 4 * 64 + (KIND == GATED ? place % 4 * 16 + part * 8 : part * 32 + place % 4 * 8);
}

// A lane's line of each eight. Rows of 128 bytes are swizzled, so lines of the lanes that read at a time are four apart.
__device__ __forceinline__ int line_of(int lane) { return ROW_BYTES == 128 ? lane / 8 + lane / 4 % 2 * 4 : lane / 4; }

// What a lane takes of its lines, and where that lies in a stage.
struct Lines {
  unsigned at[PARTS], scale_at[PARTS], waiting[PARTS];
  unsigned codes[TAKES][PARTS][4];
  Scale scales[PARTS];

  // Behind the last line the first ones are multiplied, for nobody.
  __device__ __forceinline__ Lines(unsigned kept, int place, int lane) {
    const int line = line_of(lane);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int eight = eight_of(place, part) < TILE_LINES ? eight_of(place, part) : 0;
      at[part] = (eight + line) * ROW_BYTES + (ROW_BYTES == 128 ? (lane % 4 ^ line) * 16 : lane % 4 * 16);
      scale_at[part] = kept + (eight + line) / GRAIN * 4;
      asm volatile("" : "+r"(at[part]), "+r"(scale_at[part]));  // kept, not computed at every use
    }
  }

  // Takes a batch's codes where they were not taken with those before: sixteen bytes a line at a time.
  __device__ __forceinline__ void read(unsigned weight, int batch) {
#pragma unroll
    for (int take = 0; take < TAKES; ++take) {
      const int place = (batch * DEPTH / TAKE + take) * 64;
      if (batch * DEPTH % TAKE) continue;
#pragma unroll
      for (int part = 0; part < PARTS; ++part)
        load_four(weight + place / ROW_BYTES * W_SUB + (at[part] ^ place % ROW_BYTES), codes[take][part]);
    }
  }

  // Asks for the scales of the next 128 inputs.
  __device__ __forceinline__ void ask(unsigned further) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      waiting[part] = load_one(scale_at[part]);
      scale_at[part] += further;
    }
  }

  __device__ __forceinline__ void open() {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) scales[part].open(waiting[part]);
  }

  // Widens an instruction's inputs: the lines of both parts, of its first eight inputs and of its last.
  __device__ __forceinline__ void widen(unsigned (&left)[4], int batch, int sixteen) const {
    const int word = batch * DEPTH % TAKE / (16 * PIECES) + sixteen / PIECES;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      unsigned wide[2];
      scales[part].widen(codes[word / 4][part][word % 4], sixteen % PIECES, wide);
      left[part] = wide[0], left[part + 2] = wide[1];
      asm volatile("" : "+r"(left[part]), "+r"(left[part + 2])::"memory");  // here, between products
    }
  }
};

template <int COUNT>
__device__ __forceinline__ void begin_at_zero(Sums& sums, unsigned (&left)[COUNT][4]) {
#pragma unroll
  for (int at = 0; at < X_ROWS / 2; ++at) sums[at] = 0.f;
#pragma unroll
  for (int at = 0; at < 4 * COUNT; ++at) asm volatile("" : "=r"(left[at / 4][at % 4]));
  hold(sums);
}

// Says to all who load into it that a warp needs a stage no more.
__device__ __forceinline__ void give_back(const Ring& ring, int stage, int lane) {
  if constexpr (CLUSTER > 1) {
    if (lane < CLUSTER) arrive_at(ring.empty_at(stage), lane);
  } else {
    if (lane == 0) arrive(ring.empty_at(stage));
  }
}

// Rows of an instruction as the right operand of `mma.sync`: of each eight rows inputs 2c, 2c + 1, 2c + 8 and 2c + 9 for lane c of four.
struct Rows {
  unsigned of[FEW ? X_ROWS / 8 : 1][2];

  // Where a lane's part of the first sixteen inputs lies.
  static __device__ __forceinline__ unsigned place(int lane) {
    const int row = X_ROWS > 8 ? lane / 16 * 8 + lane % 8 : lane % 8;
    return row * X_ROW_BYTES + (lane / 8 % 2 ^ lane % 8) * 16;
  }

  __device__ __forceinline__ void read(unsigned x, unsigned place, int at) {
    const unsigned from = x + at / 4 * X_BYTES + (place ^ at % 4 * 32);
    if constexpr (X_ROWS == 8) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                   : "=r"(of[0][0]), "=r"(of[0][1])
                   : "r"(from)
                   : "memory");
    } else {
#pragma unroll
      for (int eight = 0; eight < X_ROWS / 8; eight += 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(of[eight][0]), "=r"(of[eight][1]), "=r"(of[eight + 1][0]), "=r"(of[eight + 1][1])
                     : "r"(from + eight * 8 * X_ROW_BYTES)
                     : "memory");
    }
  }

  __device__ __forceinline__ void multiply(Sums& sums, const unsigned (&left)[4]) const {
#pragma unroll
    for (int eight = 0; eight < X_ROWS / 8; ++eight)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sums[eight * 4]), "+f"(sums[eight * 4 + 1]), "+f"(sums[eight * 4 + 2]), "+f"(sums[eight * 4 + 3])
          : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(of[eight][0]), "r"(of[eight][1]));
  }
};

// Adds up the whole depth in order. Between the products of a batch the next one is widened, so two places hold them in turn.
// `grouped` is 1 where each 128 inputs have scales of their own.
__device__ __forceinline__ void sum_up(Sums& sums, const Ring& ring, unsigned kept, int steps, int grouped, int warp,
                                       int lane) {
  unsigned left[2 * BATCH][4];
  begin_at_zero(sums, left);
  const unsigned further = grouped * GRAINS * 4;
  unsigned place = Rows::place(lane);
  asm volatile("" : "+r"(place));
  Lines lines(kept, warp, lane);
  int stage = 0, before = 0;
  unsigned parity = 0;
  await_phase(ring.full_at(0), 0);
  __syncwarp();
  lines.read(ring.weight(0, 0), 0);
  lines.ask(further);
  lines.open();
#pragma unroll
  for (int sixteen = 0; sixteen < BATCH; ++sixteen) lines.widen(left[sixteen], 0, sixteen);
  for (int first = 0; first < steps; first += TURNS) {
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      const int step = first + turn, now = stage;
      const unsigned weight = ring.weight(stage, 0), x = ring.x(stage, 0);
      const unsigned long long rows = descriptor(x);
      if (++stage == STAGES) stage = 0, parity ^= 1;
#pragma unroll
      for (int batch = 0; batch < BATCHES; ++batch) {
        const int number = turn * BATCHES + batch, next = (batch + 1) % BATCHES;
        const bool opened = (number + 1) * DEPTH % GROUP == 0;  // the next batch has other scales
        Rows right[BATCH];
        if constexpr (FEW)
#pragma unroll
          for (int sixteen = 0; sixteen < BATCH; ++sixteen) right[sixteen].read(x, place, batch * BATCH + sixteen);
        if (opened) lines.ask(further);
        if (next > 0) {
          lines.read(weight, next);
        } else if (step + 1 < steps) {
          await_phase(ring.full_at(stage), parity);
          __syncwarp();
          lines.read(ring.weight(stage, 0), 0);
        }
#pragma unroll
        for (int sixteen = 0; sixteen < BATCH; ++sixteen) {
          const unsigned (&one)[4] = left[number % 2 * BATCH + sixteen];
          const int at = batch * BATCH + sixteen;  // of the stage
          if constexpr (FEW) {
            right[sixteen].multiply(sums, one);
          } else {
            begin_products();
            mma(sums, one, rows + at / 4 * (X_BYTES / 16) + at % 4 * 2);
            end_products();
            // The product that read the place before has ended.
            await_products<BATCH - 1>();
          }
          if (sixteen == 0 && opened) lines.open();
          lines.widen(left[(number + 1) % 2 * BATCH + sixteen], next, sixteen);
        }
        // Those of the stage before have ended, or have taken in all that they read. Nobody waits for the last ones.
        if (batch == 0 && step > 0 && step - 1 + STAGES < steps) give_back(ring, before, lane);
      }
      before = now;
    }
  }
  if constexpr (!FEW) {
    await_products<0>();
    hold(sums);
  }
}

// Sums that one warpgroup of a pair leaves for the other one, by threads.
__device__ __forceinline__ void hand_over(const Sums& sums, unsigned to) {
#pragma unroll
  for (int at = 0; at < X_ROWS / 2; at += 4)
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + at / 4 * 2048), "f"(sums[at]), "f"(sums[at + 1]),
                 "f"(sums[at + 2]), "f"(sums[at + 3])
                 : "memory");
}

__device__ __forceinline__ void take_over(Sums& sums, unsigned from) {
#pragma unroll
  for (int at = 0; at < X_ROWS / 2; at += 4)
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sums[at]), "=f"(sums[at + 1]), "=f"(sums[at + 2]), "=f"(sums[at + 3])
                 : "r"(from + at / 4 * 2048)
                 : "memory");
}

// The same by a pair of warpgroups, which have stages in turn: while one multiplies, the other widens. They hand over the sums, so
// that these are added up in the same order. Returns whether this one has the last sums.
__device__ __forceinline__ bool sum_in_turn(Sums& sums, const Ring& ring, unsigned kept, unsigned between, int steps,
                                            int grouped, int warp, int lane) {
  unsigned left[BATCHES * BATCH][4];
  begin_at_zero(sums, left);
  const int turn = warp / 4 % 2, own = 2 + warp / 8 * 2 + turn, other = own ^ 1;  // of the barriers
  const unsigned further = grouped * GRAINS * 4;
  constexpr int SCALED = SUBS * SUB / GROUP;  // scales of a stage
  between += (place_of(warp) / 4 * (X_ROWS / 8) * 128 + warp % 4 * 32 + lane) * 16;
  Lines lines(kept, place_of(warp), lane);
#pragma unroll
  for (int part = 0; part < PARTS; ++part) lines.scale_at[part] += turn * SCALED * further;
  int stage = turn;
  unsigned parity = 0;
  for (int step = turn; step < steps; step += 2) {
    await_phase(ring.full_at(stage), parity);
    __syncwarp();
#pragma unroll
    for (int batch = 0; batch < BATCHES; ++batch) {
      lines.read(ring.weight(stage, 0), batch);
      if (batch * DEPTH % GROUP == 0) {
        lines.ask(further);
        lines.open();
      }
#pragma unroll
      for (int sixteen = 0; sixteen < BATCH; ++sixteen) lines.widen(left[batch * BATCH + sixteen], batch, sixteen);
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) lines.scale_at[part] += SCALED * further;
    const unsigned long long rows = descriptor(ring.x(stage, 0));
    if (step > 0) {
      asm volatile("bar.sync %0, 256;" ::"r"(own) : "memory");
      take_over(sums, between);
    }
    hold(sums);
    begin_products();
#pragma unroll
    for (int at = 0; at < BATCHES * BATCH; ++at) mma(sums, left[at], rows + at / 4 * (X_BYTES / 16) + at % 4 * 2);
    end_products();
    await_products<0>();
    hold(sums);
    if (step + 1 < steps) {
      hand_over(sums, between);
      asm volatile("bar.arrive %0, 256;" ::"r"(other) : "memory");
    }
    if (step + STAGES < steps) give_back(ring, stage, lane);
    if ((stage += 2) >= STAGES) stage -= STAGES, parity ^= 1;
  }
  return (steps - 1) % 2 == turn;
}
