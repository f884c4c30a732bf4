// x[rows, depth] @ weight[lines, depth]^T of bfloat16, of integers in eight bits with scales, or of e4m3 codes with scales for
// each 128 inputs, and what follows the product.
//
// Every sum is one accumulator in order of depth, and sums of integers are exact. A CTA takes one tile after the other,
// and streams its lines of the weight and its rows of x through a ring of stages in shared memory, which is filled on while a
// tile ends. Both matrices are described as numbers of two bytes, of which a row has `columns`: integers as pairs.

#include "build.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "cluster.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/cuda/ring.cuh"
#include "linear/persistent/ends.cuh"
#include "linear/persistent/groups.cuh"
#include "linear/persistent/loader.cuh"
#include "linear/persistent/plain.cuh"
#include "linear/persistent/scales.cuh"
#include "linear/persistent/sizes.cuh"

// How a warpgroup multiplies its 64 rows. `build.cuh` defines mma(sums, x, weight), one instruction that takes
// 32 bytes of inputs.

template <class Sum>
__device__ __forceinline__ void multiply(Sum (&sums)[LINES / 2], const Ring& ring, int stage, int group) {
  begin_products();
#pragma unroll
  for (int sub = 0; sub < SUBS; ++sub) {
    const unsigned long long x = descriptor(ring.x(stage, sub) + group * 64 * SUB_BYTES);
    const unsigned long long weight = descriptor(ring.weight(stage, sub));
#pragma unroll
    for (int part = 0; part < SUB / 16; ++part) mma(sums, x + 2 * part, weight + 2 * part);  // 32 bytes further
  }
  end_products();
}

// What sums become where something stands beside them.

// Rounds two results at once, where they shall take one register while what stands beside them is read.
__device__ __forceinline__ void round_early(float& low, float& high) {
  if constexpr (EARLY) return;
  unsigned both = pair_of(low, high);
  asm volatile("" : "+r"(both)::"memory");
  low = low_of(both), high = high_of(both);
}

__device__ __forceinline__ void apply_all(const Sum (&sums)[LINES / 2], const Scales& scales, float (&results)[LINES / 2],
                                          int lane) {
#pragma unroll
  for (int eight = 0; eight < LINES / 8; ++eight) {
    float four[4];
    scales.apply(sums, four, eight, lane);
    round_early(four[0], four[1]);
    round_early(four[2], four[3]);
#pragma unroll
    for (int at = 0; at < 4; ++at) results[eight * 4 + at] = four[at];
  }
}

// Where a warpgroup is in the ring, and how many steps of its tiles find no stage in it yet.
struct Turn : RingTurn<STAGES> {
  int later;
};

// Says that a warp needs the stage before its turn no more. Nobody waits for the last ones, so nobody hears of them: a CTA may
// be gone by then.
__device__ __forceinline__ void release(TileLoader& loader, Turn& turn, int lane) {
  if (turn.later-- <= 0) return;
  const bool first = turn.stage == 0;
  const int stage = first ? STAGES - 1 : turn.stage - 1;
  if (lane < CLUSTER) arrive_at(loader.ring.empty_at(stage), lane);
  if constexpr (BESIDE) {
    if (threadIdx.x == 0) loader.next(stage, turn.parity ^ first);
    __syncwarp();
  }
}

// Multiplies one step of a tile, behind whose products the step before leaves its stage.
__device__ __forceinline__ void take_step(Sum (&sums)[LINES / 2], TileLoader& loader, Turn& turn, int step, int group,
                                          int lane) {
  await_phase(loader.ring.full_at(turn.stage), turn.parity);
  multiply(sums, loader.ring, turn.stage, group);
  await_products<1>();
  if (step > 0) release(loader, turn, lane);
  turn.advance();
}

__device__ __forceinline__ void sum_up(Sum (&sums)[LINES / 2], TileLoader& loader, Turn& turn, int group, int lane) {
#pragma unroll
  for (int number = 0; number < LINES / 2; ++number) sums[number] = 0;
  hold(sums);
  for (int step = 0; step < loader.tiles.steps; ++step) take_step(sums, loader, turn, step, group, lane);
  await_products<0>();
  hold(sums);
  release(loader, turn, lane);
}

// Adds the group that was asked for last but `LEFT`. The last of a stage frees it.
template <int LEFT, class Sum>
__device__ __forceinline__ void add_group(Sum (&part)[LINES / 2], Sum (&sums)[LINES / 2], TileLoader& loader, Turn& turn,
                                          GroupScales& scales, int number, int lane) {
  float both[FACTORS];
  scales.take(both, number, lane);
  await_products<LEFT>();
  hold(part);
  if (number % SUBS == SUBS - 1) release(loader, turn, lane);
  scales.add(part, sums, both);
}

// Groups of a tile in order, those of a stage asked for together.
template <class Sum>
__device__ __forceinline__ void sum_stages(Sum (&sums)[LINES / 2], TileLoader& loader, Turn& turn, int group, int lane,
                                           GroupScales& scales) {
  for (int step = 0; step < loader.tiles.steps; ++step) {
    Sum parts[SUBS][LINES / 2];
    await_phase(loader.ring.full_at(turn.stage), turn.parity);
#pragma unroll
    for (int sub = 0; sub < SUBS; ++sub) multiply_group(parts[sub], loader.ring, turn.stage, sub, group);
    turn.advance();
    add_group<SUBS - 1>(parts[0], sums, loader, turn, scales, step * SUBS, lane);
    if constexpr (SUBS == 4) {
      add_group<2>(parts[1], sums, loader, turn, scales, step * SUBS + 1, lane);
      add_group<1>(parts[2], sums, loader, turn, scales, step * SUBS + 2, lane);
      add_group<0>(parts[3], sums, loader, turn, scales, step * SUBS + 3, lane);
    }
  }
}

// Groups of a tile in order, two of a stage: one is multiplied while the one before is added.
template <class Sum>
__device__ __forceinline__ void sum_in_turn(Sum (&sums)[LINES / 2], TileLoader& loader, Turn& turn, int group, int lane,
                                            GroupScales& scales) {
  Sum even[LINES / 2], odd[LINES / 2];
  const int steps = loader.tiles.steps;
  int step = 0;
  await_phase(loader.ring.full_at(turn.stage), turn.parity);
  multiply_group(even, loader.ring, turn.stage, 0, group);
  for (; step + 1 < steps; ++step) {
    multiply_group(odd, loader.ring, turn.stage, 1, group);
    turn.advance();
    add_group<1>(even, sums, loader, turn, scales, step * 2, lane);
    await_phase(loader.ring.full_at(turn.stage), turn.parity);
    multiply_group(even, loader.ring, turn.stage, 0, group);
    add_group<1>(odd, sums, loader, turn, scales, step * 2 + 1, lane);
  }
  if (step < steps) {
    multiply_group(odd, loader.ring, turn.stage, 1, group);
    turn.advance();
    add_group<1>(even, sums, loader, turn, scales, step * 2, lane);
    add_group<0>(odd, sums, loader, turn, scales, step * 2 + 1, lane);
  } else {  // never, but without it the compiler has every product wait for the one before
    add_group<0>(even, sums, loader, turn, scales, step * 2, lane);
  }
}

// Sums of all groups of a tile, each scaled.
template <class Sum>
__device__ __forceinline__ void sum_groups(Sum (&sums)[LINES / 2], TileLoader& loader, Turn& turn, int group, int lane,
                                           GroupScales& scales) {
#pragma unroll
  for (int number = 0; number < LINES / 2; ++number) sums[number] = 0;
  if constexpr (SUBS == 2)
    sum_in_turn(sums, loader, turn, group, lane, scales);
  else
    sum_stages(sums, loader, turn, group, lane, scales);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)
    product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, const float* line_scales,
            const float* row_scales, unsigned short* out, unsigned short* scaled, const unsigned short* stream,
            const unsigned short* norm, const long long* squares, unsigned long long* added, int rows, int height, int outputs,
            int columns, float inverse_depth, float eps, float offset) {
  extern __shared__ unsigned char memory[];
  // From lane 0, so that the compiler knows it to be the same in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  unsigned begin = (shared_address(memory) + 1023) & ~1023u;
  asm volatile("" : "+r"(begin));  // kept, not computed at every use
  const Ring ring{begin, begin + STAGES * STAGE, begin + STAGES * STAGE + STAGES * 8};
  Ends ends{out, scaled, stream, norm, squares, added, rows, outputs, inverse_depth, eps, offset};
  const WorkTiles tiles(rows, height, outputs, columns, CLUSTER > 1 ? int(cluster_rank()) : 0);
  const int total = tiles.total();
  allow_next();
  begin_ring<STAGES, CLUSTER>(ring, CLUSTER * GROUPS * 4);

  TileLoader loader{ring, &x_map, &weight_map, tiles, outputs};
  if (warp >= GROUPS * 4) {
    if constexpr (ROOMY) give_registers<LEFT>();
    if (warp == GROUPS * 4 && elected()) loader.run(total);
    __syncwarp();
  } else {
    if constexpr (ROOMY && !BESIDE) take_registers<TAKEN>();
    const int group = warp / 4, in_tile = group * 64 + warp % 4 * 16 + lane / 4;
    if (BESIDE && threadIdx.x == 0) loader.begin(total);
    __syncwarp();
    await_previous();
    Turn turn{{}, total - STAGES};
    for (int tile = tiles.first; tile < tiles.count; tile += tiles.apart) {
      int line = tiles.line(tile), row = tiles.row(tile) + in_tile;
      ends.rows = min(rows, tiles.row(tile) + height);
      Scales scales;
      unsigned streams[LINES / 4], norms[LINES / 8];
      scales.read(line_scales, row_scales, ends, row, line, lane);
      GroupScales groups;
      if constexpr (GROUPED) groups.begin(line_scales, row_scales, ends, row, line, columns / SUB, lane);
      if constexpr (KIND == ADDED && EARLY) read_beside(ends, row, line, lane, streams, norms);
      Sum sums[LINES / 2];
      if constexpr (GROUPED)
        sum_groups(sums, loader, turn, group, lane, groups);
      else
        sum_up(sums, loader, turn, group, lane);
      if constexpr (KIND == PLAIN) {
        end_plain(sums, scales, ends, row, line, lane);
      } else {
        float results[LINES / 2];
        apply_all(sums, scales, results, lane);
        if constexpr (KIND == GATED) end_gated(results, ends, row, line, lane);
        if constexpr (KIND == ADDED && !EARLY) {
          read_beside(ends, row, line, lane, streams, norms);
          asm volatile("" : "+r"(row), "+r"(line));  // places are computed anew, not kept
        }
        if constexpr (KIND == ADDED) end_added(results, ends, row, line, lane, streams, norms);
      }
    }
  }
  cluster_arrive<CLUSTER>();
  cluster_wait<CLUSTER>();
}
