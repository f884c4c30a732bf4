// Factors and bases of a block: its lines for the products with a state. Each warp has 16 columns of keys and of values.

// `reads` lines come behind those of updates.
template <bool READS>
__device__ __forceinline__ void factor(Block& block, int warp, int lane) {
  const int row = lane / 4, column = warp * 16;
  const unsigned weights = shared_address(&block.weights[READS ? 0 : 1][0][0][lane % 16][lane / 16 * 8]);
  constexpr unsigned TILE = BLOCK * HALF_PITCH * 2;
  unsigned high[4], low[4], by_high[4], by_low[4];
  const unsigned at = eight_at(ROWS_BYTES, lane % 16, column + lane / 16 * 8);
  load_four(high, weights);
  load_four(low, weights + TILE);
  load_four_turned(by_high, shared_address(block.keys) + at);
  load_four_turned(by_low, shared_address(block.keys) + 2 * ROWS_BYTES + at);
#pragma unroll
  for (int eight = 0; eight < 2; ++eight) {
    float sums[4] = {0.f, 0.f, 0.f, 0.f};
    multiply(sums, high, by_low[eight * 2], by_low[eight * 2 + 1]);
    multiply(sums, low, by_high[eight * 2], by_high[eight * 2 + 1]);
    multiply(sums, high, by_high[eight * 2], by_high[eight * 2 + 1]);
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int own = row + below * 8, line = own + (READS ? BLOCK : 0), first = column + eight * 8;
      float x = __fmul_rn(sums[below * 2], TILE_BACK), y = __fmul_rn(sums[below * 2 + 1], TILE_BACK);
      if constexpr (READS) {
        const float2 query = *reinterpret_cast<const float2*>(&block.query[own][first + lane % 4 * 2]);
        x = __fadd_rn(x, __fmul_rn(query.x, block.since[own]));
        y = __fadd_rn(y, __fmul_rn(query.y, block.since[own]));
      }
      unsigned upper, rest;
      halves(__fmul_rn(x, TILE_SCALE), __fmul_rn(y, TILE_SCALE), upper, rest);
      unsigned char* to = &block.factors[0][0][0] + eight_at(LINES_BYTES, line, first) + lane % 4 * 4;
      *reinterpret_cast<unsigned*>(to) = upper;
      *reinterpret_cast<unsigned*>(to + 2 * LINES_BYTES) = rest;
    }
  }
  load_four(high, weights + 2 * TILE);
  load_four(low, weights + 3 * TILE);
  load_four_turned(by_high, shared_address(block.values) + at);
  load_four_turned(by_low, shared_address(block.values) + 2 * ROWS_BYTES + at);
#pragma unroll
  for (int eight = 0; eight < 2; ++eight) {
    float sums[4] = {0.f, 0.f, 0.f, 0.f};
    multiply(sums, low, by_high[eight * 2], by_high[eight * 2 + 1]);
    multiply(sums, high, by_low[eight * 2], by_low[eight * 2 + 1]);
    multiply(sums, high, by_high[eight * 2], by_high[eight * 2 + 1]);
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      const int own = row + below * 8, line = own + (READS ? BLOCK : 0);
      const float back = block.back[READS ? 0 : 1][own];
      float x = __fmul_rn(sums[below * 2], back), y = __fmul_rn(sums[below * 2 + 1], back);
      if constexpr (READS) {
        const float ill = block.ill[0][own] + block.ill[1][own] + (block.ill[2][own] + block.ill[3][own]);
        x = __fadd_rn(x, ill), y = __fadd_rn(y, ill);
      }
      *reinterpret_cast<float2*>(&block.base[line][column + eight * 8 + lane % 4 * 2]) = make_float2(x, y);
    }
  }
}
