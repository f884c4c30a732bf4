// Takes 64 columns of a head through its blocks in order: what rows read, and the state; grid (2 * heads, sequences).
//
// A launch takes all blocks or a part of them; the state goes from part to part through memory. Four warps have 16 columns
// each and keep them in registers; one lane asks for the blocks ahead. All sums are those of `scan.py`, in its order. The
// build puts asynchronous.cu, arithmetic.cu and pipe.cu in front.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "gated_delta/chunks/columns.cuh"
#include "gated_delta/chunks/pipe.cuh"
#include "gated_delta/rounds/arithmetic.cuh"

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
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
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
