// Takes 64 columns of a head through its blocks in order: what rows read, and the state; grid (2 * heads, sequences).
//
// A launch takes all blocks or a part of them; the state goes from part to part through memory. Four warps have 16 columns
// each and keep them in registers; one lane asks for the blocks ahead. All sums are those of `scan.py`, in its
// order.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "gated_delta/chunks/pipe.cuh"
#include "gated_delta/rounds/arithmetic.cuh"

// Columns of a state and one block: what its lines find, and what moves the state.

// Where a lane's numbers begin: its columns are neighbours, for which row of an operand a column is does not matter.
__device__ __forceinline__ int state_at(int lane) { return lane % 4 * 2 * DIM + lane / 4 * 2; }

__device__ __forceinline__ void load_state(const float* state, bool there, float (&x)[DIM / 2]) {
#pragma unroll
  for (int pair = 0; pair < DIM / 4; ++pair) {
    const int depth = pair / 2 * 8 + pair % 2, number = pair / 2 * 4 + pair % 2;
    const float2 both = there ? *reinterpret_cast<const float2*>(state + depth * DIM) : make_float2(0.f, 0.f);
    x[number] = both.x, x[number + 2] = both.y;
  }
}

__device__ __forceinline__ void store_state(float* state, const float (&x)[DIM / 2]) {
#pragma unroll
  for (int pair = 0; pair < DIM / 4; ++pair) {
    const int depth = pair / 2 * 8 + pair % 2, number = pair / 2 * 4 + pair % 2;
    *reinterpret_cast<float2*>(state + depth * DIM) = make_float2(x[number], x[number + 2]);
  }
}

__device__ __forceinline__ float most_of_four_lanes(float most) {
  most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
  return fmaxf(most, __shfl_xor_sync(~0u, most, 2));
}

// Columns as operands: their halves, and what their products are multiplied by.
struct Operand {
  unsigned high[STEPS][4], low[STEPS][4];
  float up[2], down[2];

  __device__ __forceinline__ void weigh(const float (&x)[DIM / 2]) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      float most[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
      for (int eight = 0; eight < DIM / 8; ++eight)
        most[eight % 4] = fmaxf(most[eight % 4], fmaxf(fabsf(x[eight * 4 + below * 2]), fabsf(x[eight * 4 + below * 2 + 1])));
      scales(most_of_four_lanes(fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]))), up[below], down[below]);
    }
  }

  __device__ __forceinline__ void take(const float (&x)[DIM / 2], int step) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const int number = (step * 4 + part) * 2;
      halves(__fmul_rn(x[number], up[part % 2]), __fmul_rn(x[number + 1], up[part % 2]), high[step][part], low[step][part]);
      // Made in this order, so that the first products do not wait for the last operands.
      asm volatile("" : "+r"(high[step][part]), "+r"(low[step][part]));
    }
  }
};

__device__ __forceinline__ unsigned long long lines_at(const Stage& stage, bool rest, int step) {
  return descriptor(shared_address(stage.factors[step / 4]) + (rest ? LINES : 0) * PANEL_BYTES) + step % 4 * 2;
}

// Low by high, whose operands are made meanwhile, high by low, high by high.
__device__ __forceinline__ void multiply_lines(float (&found)[LINES / 2], Operand& own, const float (&x)[DIM / 2],
                                               const Stage& stage) {
#pragma unroll
  for (int number = 0; number < LINES / 2; ++number) found[number] = 0.f;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    own.take(x, step);
    begin_products();
    multiply_32(found, own.low[step], lines_at(stage, false, step), step > 0);
  }
#pragma unroll
  for (int step = 0; step < STEPS; ++step) multiply_32(found, own.high[step], lines_at(stage, true, step), 1);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) multiply_32(found, own.high[step], lines_at(stage, false, step), 1);
  end_products();
  await_products<0>();
  hold(found);
}

// Where a lane's numbers of a base begin; those of the next line lie at `next_line`.
__device__ __forceinline__ int base_at(int warp, int lane) {
  const int column = warp * 16 + lane / 4 * 2, line = lane % 4 * 2;
  return column / 32 * (LINES * PANEL_BYTES) + line * PANEL_BYTES + ((column % 32 / 4 ^ line) << 4) + column % 4 * 4;
}
__device__ __forceinline__ int next_line(int at) { return (at ^ 16) + PANEL_BYTES; }

// Adds what no state enters to 16 lines from `first` on.
__device__ __forceinline__ void add_base(float* sums, const float (&down)[2], const Stage& stage, int first, int at) {
#pragma unroll
  for (int pair = 0; pair < BLOCK / 4; ++pair) {
    const int number = pair / 2 * 4 + pair % 2, line = (first + pair / 2 * 8) * PANEL_BYTES;
    const unsigned char* from = stage.base[0] + line + (pair % 2 ? next_line(at) : at);
    const float2 base = *reinterpret_cast<const float2*>(from);
    sums[number] = __fadd_rn(__fmul_rn(sums[number], down[0]), base.x);
    sums[number + 2] = __fadd_rn(__fmul_rn(sums[number + 2], down[1]), base.y);
  }
}

// Starts keys times updates, for which the first 16 lines are taken apart.
__device__ __forceinline__ void start_moves(float (&moves)[DIM / 2], const float* found, float (&down)[2], const Stage& stage,
                                            int lane) {
  float update[2][4], until[4];
#pragma unroll
  for (int part = 0; part < 4; ++part) until[part] = stage.rates[part / 2 * 8 + lane % 4 * 2 + part % 2];
  unsigned high[4], low[4];
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    float most = 0.f, up;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      update[below][part] = __fmul_rn(found[part / 2 * 4 + below * 2 + part % 2], until[part]);
      most = fmaxf(most, fabsf(update[below][part]));
    }
    scales(most_of_four_lanes(most), up, down[below]);
#pragma unroll
    for (int part = 0; part < 4; ++part) update[below][part] = __fmul_rn(update[below][part], up);
  }
#pragma unroll
  for (int part = 0; part < 4; ++part)
    halves(update[part % 2][part / 2 * 2], update[part % 2][part / 2 * 2 + 1], high[part], low[part]);
  const unsigned long long keys = columns_at(shared_address(stage.keys[0])), rest = keys + (BLOCK * PANEL_BYTES >> 4);
  begin_products();
  multiply_128(moves, low, keys, 0);
  multiply_128(moves, high, rest, 1);
  multiply_128(moves, high, keys, 1);
  end_products();
}

// While products are under way: not before they begin.
__device__ __forceinline__ void decay(float (&x)[DIM / 2], float whole) {
  hold(x);
#pragma unroll
  for (int number = 0; number < DIM / 2; ++number) x[number] = __fmul_rn(x[number], whole);
}

__device__ __forceinline__ void add_moves(float (&x)[DIM / 2], const float (&moves)[DIM / 2], const float (&down)[2]) {
#pragma unroll
  for (int number = 0; number < DIM / 2; ++number)
    x[number] = __fadd_rn(x[number], __fmul_rn(moves[number], down[number / 2 % 2]));
}

// Stores what rows of the span from `first_row` on read.
__device__ __forceinline__ void store_reads(float* out, const float* found, int first_row, int rows, int features, int lane) {
#pragma unroll
  for (int pair = 0; pair < BLOCK / 4; ++pair) {
    const int row = first_row + pair / 2 * 8 + lane % 4 * 2 + pair % 2, number = pair / 2 * 4 + pair % 2;
    if (row >= 0 && row < rows)
      *reinterpret_cast<float2*>(out + row * features) = make_float2(found[number], found[number + 2]);
  }
}

struct Source {
  const TensorMap *factors, *keys, *bases;
  const float* rates;
  int own, own_step, shared, shared_step, part;
};

// One lane: asks for a block.
__device__ __forceinline__ void ask(Pipe& pipe, const Source& source, int block) {
  const int turn = block % STAGES;
  Stage& stage = pipe.stages[turn];
  const unsigned full = shared_address(&pipe.full[turn]);
  expect_bytes(full, STAGE_BYTES);
  const int own = source.own + block * source.own_step, shared = source.shared + block * source.shared_step;
#pragma unroll
  for (int panel = 0; panel < 2; ++panel) {
    load_box(shared_address(stage.factors[panel]), source.factors, panel * PANEL, own * 2 * LINES, full);
    load_box(shared_address(stage.base[panel]), source.bases, (source.part * 2 + panel) * PANEL, own * LINES, full);
    load_box(shared_address(stage.keys[panel]), source.keys, panel * PANEL, shared * 2 * BLOCK, full);
  }
  load_bytes(shared_address(stage.rates), source.rates + (size_t)own * LINES, LINES * 4, full);
}

// Asks for the block that takes the place of the last one; no warp is behind that any more.
__device__ __forceinline__ void ask_ahead(Pipe& pipe, const Source& source, int block, int count) {
  const int next = block - 1 + STAGES;
  if (threadIdx.x == 0 && block > 0 && next < count) {
    await_phase(shared_address(&pipe.empty[next % STAGES]), (next / STAGES - 1) & 1);
    ask(pipe, source, next);
  }
  __syncwarp();
}

// Copies a share of the columns of the last rows to the ring, eight numbers at a time.
__device__ __forceinline__ void keep_rows(const half_t* into, half_t* ring, int length, int reach, int ring_rows, int features,
                                          int kept, int share, int shares) {
  const int first = max(reach - ring_rows, length), each = (kept / 8 + shares - 1) / shares;
  const int begin = share * each, count = min(each, kept / 8 - begin);
  if (count <= 0) return;
#pragma unroll 4
  for (int number = threadIdx.x; number < (reach - first) * count; number += CHAIN_THREADS) {
    const int position = first + number / count, column = (begin + number % count) * 8;
    const uint4 eight = *reinterpret_cast<const uint4*>(into + (size_t)(position - length) * features + column);
    *reinterpret_cast<uint4*>(ring + (size_t)(position % ring_rows) * kept + column) = eight;
  }
}

// The blocks of a sequence that a launch takes, which begin where its state ends; the `last` hold the rows that end it.
struct Blocks {
  int length, folded, reach, count, complete;
  bool last;
};

__device__ __forceinline__ Blocks blocks_of(int length, int valid, int begin, int skipped, int most) {
  const int end = length + valid, folded = begin + skipped * BLOCK, reach = min(end, folded + most * BLOCK);
  const int rows = max(reach - folded, 0);
  return {length, folded, reach, (rows + BLOCK - 1) / BLOCK, rows / BLOCK, rows > 0 && reach == end};
}

__device__ __forceinline__ void begin(Pipe& pipe) {
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(shared_address(&pipe.full[stage]), 1);
      barrier_init(shared_address(&pipe.empty[stage]), CHAIN_WARPS);
    }
    publish_barriers();
  }
  __syncthreads();
}

__device__ __forceinline__ const Stage& await_block(Pipe& pipe, int block) {
  await_phase(shared_address(&pipe.full[block % STAGES]), block / STAGES & 1);
  return pipe.stages[block % STAGES];
}

// What a thread stores of what rows read, from which address on, and where it finds its numbers of a base.
struct ChainPlace {
  float* out;
  int features, base, lane;
};

// Takes the state through a complete block.
__device__ __forceinline__ void take_block(Pipe& pipe, const Source& source, const Blocks& blocks, const ChainPlace& place,
                                           Operand& own, float (&x)[DIM / 2], int block) {
  const Stage& stage = await_block(pipe, block);
  if (block + 1 == blocks.count) allow_next();
  const float whole = stage.rates[BLOCK];
  float moves[DIM / 2], by[2];
  float found[LINES / 2];
  multiply_lines(found, own, x, stage);
  add_base(found, own.down, stage, 0, place.base);
  start_moves(moves, found, by, stage, place.lane);
  decay(x, whole);
  ask_ahead(pipe, source, block, blocks.count);
  add_base(found + BLOCK / 2, own.down, stage, BLOCK, place.base);
  const int first_row = blocks.folded + block * BLOCK - blocks.length;
  store_reads(place.out, found + BLOCK / 2, first_row, blocks.reach - blocks.length, place.features, place.lane);
  await_products<0>();
  hold(moves);
  __syncwarp();
  if (place.lane == 0) arrive(shared_address(&pipe.empty[block % STAGES]));
  add_moves(x, moves, by);
  own.weigh(x);
}

// Of a block that is not complete rows read, and no state goes through.
__device__ __forceinline__ void read_last(Pipe& pipe, const Blocks& blocks, const ChainPlace& place, Operand& own,
                                          const float (&x)[DIM / 2]) {
  const int block = blocks.count - 1;
  const Stage& stage = await_block(pipe, block);
  allow_next();
  float found[LINES / 2];
  multiply_lines(found, own, x, stage);
  add_base(found + BLOCK / 2, own.down, stage, BLOCK, place.base);
  const int first_row = blocks.folded + block * BLOCK - blocks.length;
  store_reads(place.out, found + BLOCK / 2, first_row, blocks.reach - blocks.length, place.features, place.lane);
}

extern "C" __global__ void __launch_bounds__(CHAIN_THREADS, PROGRAMS)
    delta_chain(const __grid_constant__ TensorMap factors, const __grid_constant__ TensorMap keys,
                const __grid_constant__ TensorMap bases, const float* rates, const half_t* into, half_t* ring,
                const int64* slots, const int64* lengths, const int64* foldeds, const int64* valids, float* states, float* out,
                int width, int most_blocks, int ring_rows, int k_heads, int heads, int features, int kept, int skipped,
                int most) {
  extern __shared__ unsigned char raw[];
  // The tensor cores' swizzle follows addresses.
  Pipe& pipe = *reinterpret_cast<Pipe*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  const int warp = __shfl_sync(~0u, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
  const int head = blockIdx.x / 2, part = blockIdx.x % 2, sequence = blockIdx.y, slot = (int)slots[sequence];
  const Blocks blocks = blocks_of((int)lengths[sequence], (int)valids[sequence], (int)foldeds[sequence], skipped, most);
  begin(pipe);
  float* state = states + ((size_t)slot * heads + head) * (DIM * DIM) + part * COLUMNS + warp * 16 + state_at(lane);
  float x[DIM / 2];
  // No kernel of this forward has written the state, but the part before this one has.
  if (skipped) await_previous();
  load_state(state, blocks.folded > 0, x);
  if (!skipped) await_previous();
  const int first = sequence * most_blocks + skipped, k_head = head / (heads / k_heads);
  const Source source{&factors, &keys, &bases, rates, first * heads + head, heads, first * k_heads + k_head, k_heads, part};
  if (threadIdx.x == 0) {
    for (int block = 0; block < min(blocks.count, STAGES); ++block) ask(pipe, source, block);
  }
  __syncwarp();
  if (blocks.last)
    keep_rows(into + (size_t)sequence * width * features, ring + (size_t)slot * ring_rows * kept, blocks.length, blocks.reach,
              ring_rows, features, kept, blockIdx.x, 2 * heads);
  const size_t first_read = ((size_t)sequence * width * heads + head) * DIM + part * COLUMNS;
  const ChainPlace place{out + first_read + warp * 16 + lane / 4 * 2, heads * DIM, base_at(warp, lane), lane};
  Operand own;
  own.weigh(x);
#pragma unroll 1
  for (int block = 0; block < blocks.complete; ++block) take_block(pipe, source, blocks, place, own, x, block);
  if (blocks.complete > 0) store_state(state, x);
  if (blocks.complete < blocks.count) read_last(pipe, blocks, place, own, x);
}
