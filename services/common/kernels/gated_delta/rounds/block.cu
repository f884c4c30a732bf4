// What a block needs that no state enters, in the steps of `prepare.py`; a barrier lies between any two steps.

// Warps 0 and 1: keys times keys, for the triangle. Warps 2 and 3: queries times keys. Each has eight columns. The last
// also computes decays since the block's start, and up to its end.
__device__ __forceinline__ void couple(Block& block, int warp, int lane, bool read) {
  const bool scores = warp >= 2;
  const int first = warp % 2 * 8, column = first + lane % 4 * 2;
  const unsigned rows = shared_address(scores ? block.queries : block.keys), keys = shared_address(block.keys);
  int64 total = lane < BLOCK ? block.units[lane] : 0;
#pragma unroll
  for (int apart = 1; apart < BLOCK; apart *= 2) {
    const int64 before = __shfl_up_sync(~0u, total, apart);
    if (lane >= apart) total += before;
  }
  if (warp == 3) {
    const int64 whole = __shfl_sync(~0u, total, BLOCK - 1);
    if (lane < BLOCK) block.since[lane] = power(from_units(total)), block.until[lane] = power(from_units(whole - total));
  }
  if (scores && !read) return;
  float sums[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int term = 0; term < 3; ++term) {  // high by low, low by high, high by high
    const unsigned from = rows + (term == 1 ? 2 * ROWS_BYTES : 0), by = keys + (term == 0 ? 2 * ROWS_BYTES : 0);
#pragma unroll
    for (int deep = 0; deep < DIM; deep += 32) {
      unsigned a[2][4], b[4];
      load_four(a[0], from + eight_at(ROWS_BYTES, lane % 16, deep + lane / 16 * 8));
      load_four(a[1], from + eight_at(ROWS_BYTES, lane % 16, deep + 16 + lane / 16 * 8));
      load_four(b, by + eight_at(ROWS_BYTES, first + lane % 8, deep + lane / 8 * 8));
      multiply(sums, a[0], b[0], b[1]);
      multiply(sums, a[1], b[2], b[3]);
    }
  }
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int row = lane / 4 + below * 8;
    const int64 total_here = __shfl_sync(~0u, total, row);
#pragma unroll
    for (int each = 0; each < 2; ++each) {
      const int other = column + each;
      const float decay = power(from_units(total_here - __shfl_sync(~0u, total, other)));
      const float met = __fmul_rn(__fmul_rn(sums[below * 2 + each], TILE_BACK), decay);
      if (scores)
        block.reads[row][other] = row >= other ? met : 0.f;
      else
        block.lower[row][other] = row > other ? __fmul_rn(met, block.beta[row]) : 0.f;
    }
  }
}

template <int SIZE>
__device__ __forceinline__ void join(Block& block, int lane) {
#pragma unroll
  for (int place = lane; place < SIZE * 8; place += WARP) {
    const int start = place / (SIZE * SIZE) * 2 * SIZE, row = start + SIZE + place / SIZE % SIZE, column = start + place % SIZE;
    float sum = 0.f;
#pragma unroll
    for (int at = 0; at < SIZE; ++at)
      sum = __fmaf_rn(block.solved[row][start + SIZE + at], block.lower[start + SIZE + at][column], sum);
    block.half[row][column] = __fsub_rn(0.f, sum);
  }
  __syncwarp();
#pragma unroll
  for (int place = lane; place < SIZE * 8; place += WARP) {
    const int start = place / (SIZE * SIZE) * 2 * SIZE, row = start + SIZE + place / SIZE % SIZE, column = start + place % SIZE;
    float sum = 0.f;
#pragma unroll
    for (int at = 0; at < SIZE; ++at)
      sum = __fmaf_rn(block.half[row][start + at], block.solved[start + at][column], sum);
    block.solved[row][column] = sum;
  }
  __syncwarp();
}

// One warp: the inverse of 1 + the triangle, from blocks of two rows on; terms that are zero are left out.
__device__ __forceinline__ void invert(Block& block, int lane) {
#pragma unroll
  for (int place = lane; place < BLOCK * BLOCK; place += WARP) {
    const int row = place / BLOCK, column = place % BLOCK;
    const float lower = row / 2 == column / 2 ? block.lower[row][column] : 0.f;
    block.solved[row][column] = __fsub_rn(row == column ? 1.f : 0.f, lower);
  }
  __syncwarp();
  join<2>(block, lane);
  join<4>(block, lane);
  join<8>(block, lane);
}

// A number of each thread: what updates weigh rows by, and what reads do.
__device__ __forceinline__ void weigh(Block& block, int thread) {
  const int row = thread / BLOCK, column = thread % BLOCK;
  const float beta = block.beta[column];
  float sum = 0.f;
#pragma unroll
  for (int at = 0; at < BLOCK; ++at)
    sum = __fmaf_rn(block.reads[row][at], __fmul_rn(block.solved[at][column], beta), sum);
  block.weights[0][row][column] = sum;
  block.weights[1][row][column] = __fmul_rn(block.solved[row][column], beta);
}
