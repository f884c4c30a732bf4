// Sizes of a warp's work: it has a row of a sequence and K/V head, whose tiles of keys and of values come in turn.
//
// `build.cuh` defines SIZE (numbers of a head), KV_HEADS, GROUP (query heads of a K/V head), BLOCK (positions of a block), TOKENS
// (of a tile), SPLITS (that a row sees at most), UNITS (tiles of keys or of values under way), and whether heads are BIASED and
// NORMED.

#pragma once

#include "build.cuh"

constexpr int WARP = 32, TOKEN_STEPS = TOKENS / 16;  // products of 16 inputs
constexpr int COLUMN_STEPS = SIZE / 16;
constexpr int PANEL = 64, PANELS = SIZE / PANEL, LINE_BYTES = 128, PANEL_BYTES = TOKENS * LINE_BYTES;
constexpr int UNIT_BYTES = PANELS * PANEL_BYTES;  // of a tile of either kind
constexpr int PIECE = BLOCK < TOKENS ? BLOCK : TOKENS, PIECES = TOKENS / PIECE, BOXES = PANELS * PIECES;

static_assert(SIZE == 128 && TOKENS == 64, "a lane has four numbers of a head");
static_assert(GROUP <= 8, "a matrix instruction takes so many queries");
static_assert(BLOCK % 8 == 0 && BOXES <= WARP, "a lane asks for a box");
