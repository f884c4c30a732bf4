// Sizes of a CTA's tiles.
//
// The build defines ROWS and BAND (lines of a tile, of each half of a gated weight), SUBS (128s of depth in a stage), STAGES,
// SHARE (CTAs of a cluster that have the same lines), CTAS (of a multiprocessor) and KIND: what follows the product.

constexpr int PLAIN = 0, GATED = 1, ADDED = 2;
constexpr int SUB = 64, SUB_BYTES = SUB * 2, GROUP = 128;  // the copy engine takes 128 numbers as 64 pairs
constexpr int CLUSTER = SHARE;
constexpr int GROUPS = ROWS / 64, HALVES = KIND == GATED ? 2 : 1;
// With more warpgroups a loading warp would leave too few registers to all others, so their first warp loads beside.
constexpr bool BESIDE = GROUPS > 2;
constexpr int THREADS = GROUPS * GROUP + (BESIDE ? 0 : 32);
constexpr int HALF = (BAND + 7) / 8 * 8;  // the swizzle repeats after eight lines
// Of a matrix instruction, which takes any eight lines up to 24, and 16s above.
constexpr int LINES = HALVES * HALF <= 24 ? HALVES * HALF : (HALVES * HALF + 15) / 16 * 16;
// What stands beside the sums of a tile is read before them where registers are left for it.
constexpr bool EARLY = LINES * CTAS * (BESIDE ? 2 : 1) <= 128;
constexpr int X_SUB = ROWS * SUB_BYTES, W_SUB = LINES * SUB_BYTES;
constexpr int STAGE = SUBS * (X_SUB + W_SUB), LOADED = SUBS * (X_SUB + HALVES * BAND * SUB_BYTES);

static_assert(ROWS % 64 == 0 && ROWS <= 256, "a warpgroup multiplies 64 rows");
static_assert(!BESIDE || SHARE == 1, "a warp that multiplies waits for no other CTA");
static_assert(LINES <= 256 && BAND % (KIND == PLAIN ? 4 : 2) == 0, "lines of a wgmma; results are stored in pairs or fours");
static_assert(SUBS % SHARE == 0, "each CTA of a cluster loads its part of the lines");
