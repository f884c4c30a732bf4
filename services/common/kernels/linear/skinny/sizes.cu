// Sizes of a CTA's tiles.
//
// The build defines ROWS (of x, those behind the last count as zero) and KIND: what follows the product. Of the CTAs that
// lead and of those that follow it says LINES of the weight that a CTA loads, BOX of them at a time, SUBS (64s of depth in a
// stage) and STAGES.

constexpr int PLAIN = 0, GATED = 1, ADDED = 2, GATES = 3;
constexpr int SUB = 64, SUB_BYTES = SUB * 2;  // 64 numbers are a swizzled row of 128 bytes
constexpr int CLUSTER = 1, WARPS = 4;
constexpr int OUTPUTS = KIND == GATED ? LINES / 2 : LINES;  // of a CTA
constexpr int EIGHTS = (LINES + 7) / 8;      // the swizzle repeats after eight lines
constexpr int TILES = (EIGHTS + 7) / 8;      // of 64 lines, what a matrix instruction multiplies
constexpr int X_SUB = ROWS * SUB_BYTES, W_SUB = EIGHTS * 8 * SUB_BYTES;
constexpr int STAGE = SUBS * (X_SUB + W_SUB), W_LOADED = SUBS * LINES * SUB_BYTES;
constexpr int ENDERS = EIGHTS < 2 * WARPS ? (EIGHTS + 1) / 2 : WARPS;  // warps that have lines of a tile
constexpr int SUMS = ROWS / 2, OWN = ROWS / 4;  // of a thread: sums of a tile, and rows that it has two of the lines of

static_assert(ROWS % 8 == 0 && ROWS <= 32, "rows of a wgmma");
static_assert(KIND != GATED || BOX % 16 == 0, "eight lines of the gate stand beside eight that it gates");
static_assert(LINES % BOX == 0 && (LINES == BOX || BOX % 8 == 0), "boxes begin where the swizzle does");
