// Sizes of a CTA's tiles.
//
// `build.cuh` defines ROWS of a tile, SUBS (swizzled rows of depth in a stage), STAGES, SHARE or ACROSS (CTAs of a cluster that
// have the same lines, or the same rows), and what `lines.cuh` takes.

#pragma once

#include "build.cuh"
#include "linear/cuda/lines.cuh"
#include "linear/cuda/ring.cuh"

constexpr int SUB = 64, SUB_BYTES = SUB * 2, GROUP = 128;  // TMA takes integers of eight bits as pairs
constexpr int CLUSTER = SHARE * ACROSS;
constexpr int GROUPS = ROWS / 64;
// With more warpgroups a loading warp would leave too few registers to all others, so their first warp loads beside.
constexpr bool BESIDE = GROUPS > 2;
// Sums of groups beside those of all inputs need the registers of a whole warpgroup, of which one warp loads.
constexpr bool ROOMY = GROUPED && GROUPS > 1;
constexpr int THREADS = GROUPS * GROUP + (BESIDE ? 0 : ROOMY ? GROUP : 32);
constexpr int LEFT = 24, TAKEN = 240;  // registers of a thread
// What stands beside the sums of a tile is read before them where registers are left for it.
constexpr bool EARLY = LINES * (BESIDE ? 2 : 1) * (GROUPED ? 2 : 1) <= 128;
constexpr int X_SUB = ROWS * SUB_BYTES, W_SUB = LINES * SUB_BYTES;
// CTAs that share lines load for one another different parts of a stage's depth, or different halves, or parts of the lines.
constexpr int OWN_SUBS = SUBS % SHARE ? SUBS : SUBS / SHARE;
constexpr int OWN_HALVES = SUBS % SHARE && HALVES % SHARE == 0 ? HALVES / SHARE : HALVES;
constexpr int CUTS = SUBS % SHARE && HALVES % SHARE ? SHARE : 1;
constexpr int LINE_BOX = CUTS > 1 ? HALF / CUTS : BAND;
constexpr int STAGE = SUBS * (X_SUB + W_SUB), W_LOADED = SUBS * HALVES * CUTS * LINE_BOX * SUB_BYTES;
// A mask of a cluster's CTAs.
constexpr unsigned EVERY_CTA = (1u << CLUSTER) - 1;

static_assert(SHARE == 1 || ACROSS == 1, "a cluster has lines in common, or rows");
static_assert(ROWS % 64 == 0 && ROWS <= 256, "a warpgroup multiplies 64 rows");
constexpr int STORED = KIND == PLAIN ? 4 : 2;
static_assert(LINES <= 256 && BAND % STORED == 0, "lines of a wgmma; results are stored in pairs or fours");
// Codes of one byte have scales for each 128 inputs where they are GROUPED.
static_assert(!GROUPED || (!WIDE && !BESIDE && BAND % 8 == 0 && HALF <= 128), "a band has lines of two blocks at most");
static_assert(HALF % (8 * CUTS) == 0, "what a CTA loads for others begins where the swizzle does");

using Ring = StageRing<STAGE, SUBS, X_SUB, W_SUB>;
