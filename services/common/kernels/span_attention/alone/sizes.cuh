// Sizes of a CTA's work. The CTAs of a cluster have a K/V head together: each takes splits of what its queries see, a team of
// warps one of them, and merges some columns of all.
//
// `build.cuh` defines SIZE (numbers of a head), GROUP (query heads of a K/V head), BLOCK (positions of a block), TOKENS (of a
// tile), SPLITS (that a row sees at most), WINDOW (positions that a row sees at most, 0: all) and CTAS (of a cluster).

#pragma once

#include "build.cuh"
#include "span_attention/alone/rows.cuh"

constexpr int WARP = 32, TEAM_WARPS = 4, TEAM_THREADS = TEAM_WARPS * WARP;
constexpr int TEAMS = SPLITS / CTAS, WARPS = TEAMS * TEAM_WARPS, THREADS = WARPS * WARP;
constexpr int TOKEN_STEPS = TOKENS / 16;                                          // products of 16 inputs
constexpr int OWN_TOKENS = TOKENS / TEAM_WARPS, OWN_COLUMNS = SIZE / TEAM_WARPS;  // of a warp
constexpr int EIGHTS = TOKENS / 8;                                                // positions that lie together in a block
constexpr int COLUMNS = SIZE / CTAS;                                              // that a CTA merges
constexpr int SCORES = TOKENS + 8;                                                // so that rows lie in other banks
constexpr unsigned SPLIT_BYTES = GROUP * (COLUMNS + 2) * 4;                       // that a CTA gets of a split

struct TeamShares {
  alignas(16) float parts[SPLITS][GROUP][COLUMNS];
  alignas(16) float2 sums[SPLITS][GROUP];  // references and masses
  alignas(16) unsigned short rows[ROWS][ROW];
  alignas(16) float scores[TEAMS][2][GROUP][SCORES];  // of two tiles in turn
  unsigned long long there;                           // barrier: all parts have come
};

static_assert(SIZE == 128 && TOKENS == 64, "a warp has 16 positions of a tile and 32 columns");
static_assert(GROUP <= 8, "a matrix instruction has so many rows in a thread's first registers");
static_assert(BLOCK % 8 == 0 && COLUMNS % 8 == 0 && SPLITS % CTAS == 0, "a lane has eight columns of eight positions");
static_assert(WINDOW <= (SPLITS - 1) * TOKENS + 1, "however a window lies, no more splits than teams have it");
static_assert(sizeof(TeamShares) <= MOST_SHARED, "a multiprocessor has so much beside a product");
