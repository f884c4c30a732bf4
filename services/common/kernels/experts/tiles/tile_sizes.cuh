// What one program is built for, and what lies where in shared memory.
//
// `build.cuh` defines DEPTH and OUTPUTS (of an expert's product), RANKS (experts of a row), GATED (the first product: its gate
// and what that gates are joined), STAGES, CODED (weights are codes of e4m3), SHORT (scales are numbers of bfloat16), LINES and
// PLACES of a tile, FEWER (it may have no more rows than that), and CTAS of a multiprocessor.

#pragma once

#include "build.cuh"

constexpr int GROUPS = 2, GROUP_LINES = LINES / GROUPS, LOADING = 128, THREADS = GROUPS * 128 + LOADING;
constexpr int ROW = 128, INPUTS = CODED ? 128 : 64, PANELS = INPUTS / 64;  // of a stage
constexpr int BAND = GATED ? LINES / 2 : LINES, BANDS = (OUTPUTS + BAND - 1) / BAND, STEPS = DEPTH / INPUTS;
constexpr int HALVES = GROUP_LINES / 64;  // of a warpgroup: what one instruction multiplies
constexpr int WARP_OUTPUTS = BAND / (GROUPS * 4), LANE_WORDS = GATED ? HALVES : 2 * HALVES;  // of two outputs each
constexpr bool LOW = CTAS > 1;                                                               // a tile has few rows
constexpr int WEIGHT_BYTES = LINES * ROW, PANEL_BYTES = PLACES * ROW, STAGE_BYTES = WEIGHT_BYTES + PANELS * PANEL_BYTES;
constexpr int BARRIERS_AT = STAGES * STAGE_BYTES, ROOTS_AT = BARRIERS_AT + STAGES * 16, TARGETS_AT = ROOTS_AT + 2 * PLACES * 4;

static_assert(DEPTH % INPUTS == 0 && OUTPUTS % WARP_OUTPUTS == 0, "whole stages, and outputs of whole warps");
static_assert(WARP_OUTPUTS == LANE_WORDS * 8, "four lanes have the outputs of a warp");
static_assert(!CODED || STEPS <= 32, "a lane has the scales of a stage");
