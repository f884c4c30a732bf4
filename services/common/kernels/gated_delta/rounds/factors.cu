// Factors and bases of a block: its lines for the products with a state. Each warp has 16 columns of keys and of values.

// A 16 x 16 operand from what a lane has of it: rows lane / 4 and 8 below, columns in pairs.
__device__ __forceinline__ void operand(const float (&x)[2][4], unsigned (&high)[4], unsigned (&low)[4]) {
#pragma unroll
  for (int part = 0; part < 4; ++part)
    halves(x[part % 2][part / 2 * 2], x[part % 2][part / 2 * 2 + 1], high[part], low[part]);
}

// `reads` lines come behind those of updates.
template <bool READS>
__device__ __forceinline__ void factor(Block& block, int warp, int lane) {
  const float(&weights)[BLOCK][SMALL_PITCH] = block.weights[READS ? 0 : 1];
  const int row = lane / 4, column = warp * 16;
  float of_keys[2][4], of_values[2][4], back[2];
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    float most = 0.f;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int at = lane % 4 * 2 + part / 2 * 8 + part % 2;
      const float weight = weights[row + below * 8][at];
      of_keys[below][part] = __fmul_rn(__fmul_rn(weight, __fsub_rn(0.f, block.since[at])), TILE_SCALE);
      of_values[below][part] = __fmul_rn(weight, __fmul_rn(block.down[at], TILE_UP));
      most = fmaxf(most, fabsf(of_values[below][part]));
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    float up;
    scales(most, up, back[below]);
#pragma unroll
    for (int part = 0; part < 4; ++part) of_values[below][part] = __fmul_rn(of_values[below][part], up);
  }
  unsigned high[4], low[4], by_high[4], by_low[4];
  const unsigned at = eight_at(ROWS_BYTES, lane % 16, column + lane / 16 * 8);
  operand(of_keys, high, low);
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
  operand(of_values, high, low);
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
      float x = __fmul_rn(sums[below * 2], back[below]), y = __fmul_rn(sums[below * 2 + 1], back[below]);
      if constexpr (READS) x = __fadd_rn(x, block.ill[own]), y = __fadd_rn(y, block.ill[own]);
      *reinterpret_cast<float2*>(&block.base[line][column + eight * 8 + lane % 4 * 2]) = make_float2(x, y);
    }
  }
}
