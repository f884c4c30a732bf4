// Sizes of a CTA's tiles. Its warpgroups have 64 rows of a K/V head's queries each, or share rows and have columns each, or
// have nothing in common: then each takes items of its own, whose tiles come through a ring of its own.
//
// `build.cuh` defines SIZE (numbers of a head), GROUP (query heads of a K/V head), KV_HEADS, BLOCK (positions of a block), TOKENS
// (of a tile), SPLITS (that a row sees at most), STAGES (tiles of an item under way), ROW_GROUPS, ITEMS (that a CTA takes at
// once), SORTED (lines of items whose order a CTA has room for), HALVES (of a warpgroup's rows that an item may have), RANKED:
// whether lines are sequences that came sorted, SPREAD: how many CTAs of a cluster take an item together, each some columns of
// its values, ALONE: whether no other program takes splits, HAS_BLOCK: whether rows are a drafter's block, which lies beside
// paged memory and all of which they see, else they see what is before them, TREE: whether rows are nodes, which see their
// own paths, CODES: whether keys and values are codes, of which CODE_STAGES tiles are under way, WIDENERS: warpgroups that make
// numbers of them, COUNTED_ROWS: where codes are left operands, rows of an item at most, by eights, and else 0, KEY_GROUPS:
// warpgroups that score them, and HANDED: tiles whose weights are on their way.

#pragma once

#include "build.cuh"

constexpr int THREADS = 128, COLUMNS = (SIZE < 128 ? SIZE : 128) / SPREAD, GROUP_ROWS = 64;  // of a warpgroup
// A warp has eight rows of each half: where an item has up to half of the rows, all warps share them, and none weighs others.
constexpr int HALF_ROWS = GROUP_ROWS / 2;
constexpr int COLUMN_GROUPS = SIZE / COLUMNS / SPREAD, ITEM_GROUPS = ROW_GROUPS * COLUMN_GROUPS;
constexpr int ROWS = ROW_GROUPS * GROUP_ROWS;
constexpr int GROUPS = ITEMS * ITEM_GROUPS;
// Rows whose splits have two sizes are taken together where one CTA has all splits, and has registers to know two sizes.
constexpr bool LEFT = COUNTED_ROWS > 0, TOGETHER = ALONE && COLUMN_GROUPS == 1 && !LEFT;
constexpr int PANEL = 64, PANEL_BYTES = PANEL * 2;  // 64 numbers are a swizzled row of 128 bytes
constexpr int PANELS = SIZE / PANEL;
constexpr int HALF_TILE = TOKENS * PANEL_BYTES;  // a panel of a tile
constexpr int TILE_BYTES = PANELS * HALF_TILE;
// CTAs of a cluster have all keys of a tile, and their columns of its values.
constexpr int STAGE = TILE_BYTES + TILE_BYTES / SPREAD;
constexpr int PIECE = BLOCK < TOKENS ? BLOCK : TOKENS, PIECES = TOKENS / PIECE;  // positions that lie together
constexpr int QUERY_PANEL = ROWS * PANEL_BYTES, QUERY_BYTES = PANELS * QUERY_PANEL;
// Several warpgroups leave a loading one few registers, and so take its other warps too.
// Of narrow heads one loads keys and values.
constexpr int LOADERS = PANELS == 1 ? 1 : (GROUPS > 1 && !CODES) || (SPREAD > 1 && PIECES > 1) ? 4 : 2;
constexpr int ITEM_LOADERS = LOADERS / ITEMS;
// Codes of a head are as wide as one panel. Exponents of all heads of a line lie side by side, and are copied together.
constexpr int CODE_TILE = TOKENS * SIZE, EXPONENT_TILE = TOKENS * KV_HEADS;
constexpr int CODES_BYTES = CODE_STAGES * 2 * CODE_TILE, EXPONENTS_BYTES = CODE_STAGES * 2 * EXPONENT_TILE;
constexpr int PANELS_EACH = CODES ? 1 : PANELS / SPREAD,
              BOXES = 2 * PANELS_EACH * PIECES / ITEM_LOADERS;  // a lane loads a box at most
// Where warpgroups score and add apart, a stage has values of a tile beside keys of the tile so far ahead.
constexpr bool APART = CODES && GROUPS == 1 && !LEFT;
constexpr int SKEW = APART ? 2 : 0;

static_assert(TOKENS == 64 && SIZE % COLUMNS == 0, "a tile is one instruction wide");
static_assert(SPREAD == 1 || (SPREAD == PANELS && ALONE && GROUPS == 1), "CTAs of a cluster load a panel each");
static_assert(!TREE || (ALONE && GROUPS == 1 && !HAS_BLOCK), "trees are a target's");
static_assert(!CODES || (SIZE == PANEL_BYTES && SPREAD == 1 && ITEMS == 1 && !HAS_BLOCK), "codes of a target's heads of 128");
static_assert(PIECE % 8 == 0 && BOXES <= 32, "the swizzle repeats after eight rows; a lane loads a box");

// One launch serves both kernels, so both are given the same. What only `attend.cu` uses: ranks, parts and their sums. What only
// trees use: the positions of nodes, and the row of each node's ancestor at each depth. Where sequences lie `side_by_side` one may
// read what another one's rows write in the same forward.
#define PARAMETERS                                                                                                           \
  const __grid_constant__ TensorMap map, const unsigned short *q, const int *tables, const long long *lengths,               \
      const long long *reaches, const int2 *ranks, float *partial, float *sums, unsigned short *out, int places, int stride, \
      int columns, int sequences, int width, int programs, int parts, float scale, const unsigned short *block_keys,         \
      const unsigned short *block_values, int block_sequence, int block_row, int block_head, const long long *positions,     \
      const int *lineage, int side_by_side, const signed char *exponents
