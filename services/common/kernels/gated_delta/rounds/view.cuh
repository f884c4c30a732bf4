// A block of one of two heads that share queries and keys: references to where its parts are kept.

#pragma once

#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/memory.cuh"

// Queries and keys are ill for both heads.
struct Ills {
  float (*both)[BLOCK], (*own)[BLOCK];
  __device__ float* operator[](int part) const { return part < 2 ? both[part] : own[part]; }
};

struct View {
  unsigned char (&factors)[2][2][LINES_BYTES];
  unsigned char (&keys)[2][2][ROWS_BYTES], (&queries)[2][2][ROWS_BYTES], (&values)[2][2][ROWS_BYTES];
  float (&base)[LINES][PITCH], (&query)[BLOCK][PITCH];
  float (&lower)[BLOCK][SMALL_PITCH], (&reads)[BLOCK][SMALL_PITCH], (&solved)[BLOCK][SMALL_PITCH], (&half)[BLOCK][SMALL_PITCH];
  half_t (&weights)[2][2][2][BLOCK][HALF_PITCH];
  float (&back)[2][BLOCK];
  int64 (&units)[BLOCK];
  Ills ill;
  float (&beta)[BLOCK], (&down)[BLOCK], (&since)[BLOCK], (&until)[BLOCK];
};
