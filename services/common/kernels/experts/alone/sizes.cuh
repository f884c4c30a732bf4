// What one program is built for, and what lies where in shared memory.
//
// `build.cuh` defines HIDDEN and INNER (numbers of a row, and of an expert's inner part), COUNT (experts), TOP_K (those of a
// row), RENORM, RATED (they are rated by sigmoids, and a bias counts for the choice alone), FOLLOWED (one that all rows take
// lies behind them), UP (outputs of a piece of the first product), DOWN (those of the last), STAGES, CODED (weights are codes
// of e4m3) and SHORT (scales are numbers of bfloat16).

#pragma once

#include "build.cuh"

constexpr int SIXTEEN = 16, ROW = 128;    // lines of a warp, and bytes of a line in a stage: what the swizzle takes
constexpr int INPUTS = CODED ? 128 : 64;  // of a stage
constexpr int UP_STEPS = HIDDEN / INPUTS, DOWN_STEPS = INNER / INPUTS;
constexpr int UP_BANDS = (INNER + UP - 1) / UP, DOWN_BANDS = (HIDDEN + DOWN - 1) / DOWN;
constexpr int RANKS = TOP_K + FOLLOWED;  // of a row
constexpr int FIRST = RANKS * UP_BANDS, PIECES = FIRST + DOWN_BANDS;
constexpr int UP_LINES = 2 * UP, DOWN_LINES = RANKS * DOWN, MOST_LINES = UP_LINES > DOWN_LINES ? UP_LINES : DOWN_LINES;
constexpr int WARPS = (MOST_LINES + SIXTEEN - 1) / SIXTEEN, THREADS = WARPS * 32;  // that multiply
constexpr int SLOT = MOST_LINES * ROW;

static_assert(UP % 8 == 0 && DOWN % SIXTEEN == 0 && HIDDEN % INPUTS == 0 && INNER % INPUTS == 0,
              "whole instructions and stages");
static_assert(DOWN <= 32 && (!CODED || (UP_STEPS <= 32 && DOWN_STEPS <= 32)), "a lane has an output, and scales of a stage");

// Behind the stages: the row, and of each warp its expert's inner row, in the order of lanes; parts; barriers; what each stage
// is of; the row's experts and their weights.
constexpr int X_AT = STAGES * SLOT, INNER_AT = X_AT + HIDDEN * 2, PARTS_AT = INNER_AT + WARPS * INNER * 2;
constexpr int BARRIERS_AT = PARTS_AT + DOWN_LINES * 4, PIECES_AT = BARRIERS_AT + STAGES * 16,
              EXPERTS_AT = PIECES_AT + STAGES * 4;
constexpr int WEIGHTS_AT = EXPERTS_AT + RANKS * 4;

constexpr unsigned MARKS = 65535;  // a word has sixteen bits for the mark of its launch, and zero is nobody's

// What the CTAs of a launch share: pieces that are taken, CTAs that are done, and launches before. Behind it lie inner rows,
// numbers that are each marked by the launch.
struct RowShared {
  unsigned taken, done, launches, unused;
  unsigned inner[RANKS * INNER];

  // Never zero, and another one than before.
  __device__ __forceinline__ unsigned mark() const { return *const_cast<const volatile unsigned*>(&launches) + 1; }
};
