// What a CTA keeps of two heads that share queries and keys, and how the functions of `rounds` see one of them.
//
// Warps that prepare fill what a block needs; what the warps with states need of it they get in one `Ready` a head.

#pragma once

#include "build.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"
#include "gated_delta/rounds/view.cuh"

constexpr int TOGETHER_HEADS = 2, STATE_COLUMNS = DIM / WARPS, EACH_THREADS = THREADS;

struct Own {
  unsigned char values[2][2][ROWS_BYTES];
  float reads[BLOCK][SMALL_PITCH], solved[BLOCK][SMALL_PITCH];
  // What only the inverse needs gives its place to weights.
  union {
    struct {
      float lower[BLOCK][SMALL_PITCH], half[BLOCK][SMALL_PITCH];
    } inverse;
    half_t weights[2][2][2][BLOCK][HALF_PITCH];
  };
  float back[2][BLOCK];
  int64 units[BLOCK];
  float ill[4][BLOCK], beta[BLOCK], down[BLOCK], since[BLOCK], until[BLOCK];
};
static_assert(sizeof(Own) % 128 == 0, "rows of eight keep their place among banks");

struct alignas(1024) Ready {
  unsigned char factors[2][2][LINES_BYTES];
  float base[LINES][PITCH];
  float since[BLOCK], until[BLOCK];
};

// Which block of a sequence is prepared: where the sequence's rows lie, and at which turn of its ring the block begins.
struct Where {
  const half_t* into;
  half_t* ring;
  int sequence, length, start, turn;
};

struct RoundPair {
  alignas(1024) unsigned char keys[2][2][2][ROWS_BYTES];  // of two blocks in turn: states may still move by the last one's
  Ready ready[TOGETHER_HEADS];
  unsigned char queries[2][2][ROWS_BYTES];
  Own own[TOGETHER_HEADS];
  float query[BLOCK][PITCH];
  float conv[TAPS][2 + TOGETHER_HEADS][DIM];
  alignas(16) half_t raw[2 + TOGETHER_HEADS][TAPS - 1 + BLOCK][DIM];  // as projected: queries, keys, values of each head
  float states[WARPS][DIM * STATE_COLUMNS];                           // each warp's columns of the next head
  unsigned long long full[TOGETHER_HEADS], empty[TOGETHER_HEADS];
  unsigned long long arrived[2];  // rows of queries and keys, and of values
  Where places[2];                // of the block behind the one that is prepared, and of the one behind that, in turn
  int taken;                      // how many pairs of a block's rows of values some warp makes or has made
};
static_assert(sizeof(RoundPair) == PAIR_BYTES, "as `source.py` counts");

struct PairBlock : View {
  // As it is prepared, or as it was handed over. `turn` numbers a CTA's blocks.
  __device__ PairBlock(RoundPair& pair, int which, int turn, bool handed = false)
      : PairBlock(pair, pair.own[which], pair.ready[which], turn, handed) {}
  __device__ PairBlock(RoundPair& pair, Own& own, Ready& ready, int turn, bool handed)
      : View{ready.factors,
             pair.keys[turn % 2],
             pair.queries,
             own.values,
             ready.base,
             pair.query,
             own.inverse.lower,
             own.reads,
             own.solved,
             own.inverse.half,
             own.weights,
             own.back,
             own.units,
             Ills{pair.own[0].ill, own.ill},
             own.beta,
             own.down,
             handed ? ready.since : own.since,
             handed ? ready.until : own.until} {}
};

struct PairMemory {
  struct Blocks {
    PairBlock only;
    __device__ PairBlock& operator[](int) { return only; }
  } blocks;
  struct Taps {
    float (&conv)[TAPS][2 + TOGETHER_HEADS][DIM];
    int own;
    struct Parts {
      float (&parts)[2 + TOGETHER_HEADS][DIM];
      int own;
      __device__ float* operator[](int part) const { return parts[part < 2 ? part : 2 + own]; }
    };
    __device__ Parts operator[](int tap) const { return {conv[tap], own}; }
  } conv;

  __device__ PairMemory(RoundPair& pair, int which, int turn) : blocks{PairBlock(pair, which, turn)}, conv{pair.conv, which} {}
};
