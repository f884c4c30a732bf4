// What a CTA keeps of a key head and of two of its value heads; the functions of `rounds` see one of them at a time.

#pragma once

#include "build.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"
#include "gated_delta/rounds/view.cuh"

struct ChunkPair {
  struct Own {
    unsigned char values[2][2][ROWS_BYTES];
    float lower[BLOCK][SMALL_PITCH], reads[BLOCK][SMALL_PITCH], solved[BLOCK][SMALL_PITCH], half[BLOCK][SMALL_PITCH];
    half_t weights[2][2][2][BLOCK][HALF_PITCH];
    float back[2][BLOCK];
    int64 units[BLOCK];
    float ill[4][BLOCK], beta[BLOCK], down[BLOCK], since[BLOCK], until[BLOCK];
  };
  unsigned char factors[2][2][LINES_BYTES];
  unsigned char keys[2][2][ROWS_BYTES], queries[2][2][ROWS_BYTES];
  alignas(1024) Own own[2];
  float base[LINES][PITCH], query[BLOCK][PITCH];
  float conv[TAPS][4][DIM];
};
static_assert(sizeof(ChunkPair) == PAIR_BYTES, "as `source.py` counts");
static_assert(sizeof(ChunkPair::Own) % 128 == 0, "rows of eight keep their place among banks");

struct ChunkBlock : View {
  __device__ ChunkBlock(ChunkPair& pair, int which) : ChunkBlock(pair, pair.own[which]) {}
  __device__ ChunkBlock(ChunkPair& pair, ChunkPair::Own& own)
      : View{pair.factors, pair.keys,  pair.queries, own.values,  pair.base, pair.query, own.lower,
             own.reads,    own.solved, own.half,     own.weights, own.back,  own.units,  Ills{pair.own[0].ill, own.ill},
             own.beta,     own.down,   own.since,    own.until} {}
};

struct ChunkMemory {
  struct Blocks {
    ChunkBlock only;
    __device__ ChunkBlock& operator[](int) { return only; }
  } blocks;
  struct Taps {
    float (&conv)[TAPS][4][DIM];
    int own;
    struct Parts {
      float (&parts)[4][DIM];
      int own;
      __device__ float* operator[](int part) const { return parts[part < 2 ? part : 2 + own]; }
    };
    __device__ Parts operator[](int tap) const { return {conv[tap], own}; }
  } conv;

  __device__ ChunkMemory(ChunkPair& pair, int which) : blocks{ChunkBlock(pair, which)}, conv{pair.conv, which} {}
};
