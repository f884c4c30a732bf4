// Sizes of a CTA's tiles.
//
// The build defines ROWS and BAND (lines of a CTA, of each half of a gated weight), SUBS (64s of depth in a stage), STAGES,
// SHARE (CTAs of a cluster that have the same lines) and GATED.

constexpr int SUB = 64, SUB_BYTES = SUB * 2, GROUP = 128;  // 64 numbers are a swizzled row of 128 bytes
constexpr int CLUSTER = SHARE;
constexpr int GROUPS = ROWS / 64, HALVES = GATED ? 2 : 1;
// With four warpgroups a loading warp would leave too few registers to all others, so their first warp loads beside.
constexpr bool BESIDE = GROUPS > 2;
constexpr int HALF = (BAND + 7) / 8 * 8, LINES = HALVES * HALF;  // the swizzle repeats after eight lines
constexpr int X_SUB = ROWS * SUB_BYTES, W_SUB = LINES * SUB_BYTES;
constexpr int STAGE = SUBS * (X_SUB + W_SUB), LOADED = SUBS * (X_SUB + HALVES * BAND * SUB_BYTES);

static_assert(ROWS % 64 == 0 && ROWS <= 256, "a warpgroup multiplies 64 rows");
static_assert(!BESIDE || SHARE == 1, "a warp that multiplies waits for no other CTA");
static_assert(LINES <= 256 && BAND % 2 == 0, "lines of a wgmma; results are stored in pairs");
static_assert(W_SUB % 1024 == 0 && HALF * SUB_BYTES % 1024 == 0, "tiles begin where the swizzle does");
static_assert(SUBS % SHARE == 0, "each CTA of a cluster loads its part of the lines");
