// Rows by their experts: a tile is some rows of one expert by some of its lines. CTAs take one tile after the other.
//
// Lines are the left operand. They come by TMA, and rows by asynchronous copies, for they lie anywhere. Every sum is one
// accumulator in order of depth, so a row has the bits of other tiles.

#include "experts/tiles/tile_sizes.cuh"
#include "arithmetic.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "wgmma.cuh"
#include "experts/tiles/tile_lines.cuh"
#include "linear/cuda/left.cuh"

struct TileTask {
  const TensorMap* map;
  const unsigned short* x;
  const unsigned* scales;
  const int *order, *tiles, *count;
  const long long* squares;
  unsigned short* out;
  int most_tiles, next_expert, next_group, shift;
  float inverse_depth, eps;
};

// A tile of places, and a band of outputs.
struct WorkTile {
  int tile, band, expert, rows;

  __device__ __forceinline__ WorkTile(const TileTask& task, int item) {
    tile = item / BANDS, band = item % BANDS;
    expert = task.tiles[tile], rows = task.tiles[task.most_tiles + tile];
  }
};

__device__ __forceinline__ void load_lines(unsigned to, const TileTask& task, const WorkTile& work, int step,
                                           unsigned barrier) {
  if constexpr (GATED)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %3, %4, %5}], [%6], %7;" ::"r"(to),
        "l"(task.map), "r"(step * 64), "r"(0), "r"(work.band * (BAND / 8)), "r"(work.expert), "r"(barrier), "l"(USED)
        : "memory");
  else
    load<false>(to, task.map, step * 64, work.expert * OUTPUTS + work.band * BAND, barrier, 0, USED);
}

// A tile, and the row that a thread copies a part of for every sixteenth place; -1: none.
struct TileSource {
  static constexpr int EACH = PLACES / (LOADING / 8);
  WorkTile work;
  int from[EACH];

  __device__ __forceinline__ TileSource(const TileTask& task, int item, int first) : work(task, item) {
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
      const int place = first + each * (LOADING / 8), row = work.tile * PLACES + place;
      if constexpr (LOW) {  // what lies there is asked for before it is known whether it is used
        const int pair = GATED ? task.order[row] : row;
        from[each] = place < work.rows ? (GATED ? pair / RANKS : pair) : -1;
      } else {
        from[each] = place < work.rows ? (GATED ? task.order[row] / RANKS : row) : -1;
      }
    }
  }
};

// A warpgroup that fills the ring: each thread copies sixteen bytes of every sixteenth row.
struct TileFiller {
  static constexpr int EACH = TileSource::EACH;
  const TileTask& task;
  const TileRing ring;
  int thread;
  RingTurn<STAGES> turn;
  int filled = 0, asked = 0;

  __device__ __forceinline__ void load_stage(const WorkTile& work, int step, int stage) const {
    expect_bytes(ring.full(stage), WEIGHT_BYTES);
    load_lines(ring.weight(stage), task, work, step, ring.full(stage));
  }

  __device__ __forceinline__ void ask(const WorkTile& work) {
    asked = min(STAGES, STEPS);
    if (thread == 0)
      for (int step = 0; step < asked; ++step) load_stage(work, step, step);
  }

  __device__ __forceinline__ void fill(const TileSource& source) {
    const int chunk = thread % 8, first = thread / 8;
    for (int step = 0; step < STEPS; ++step) {
      if (filled >= STAGES) await_phase(ring.empty(turn.stage), turn.parity ^ 1);
      if (thread == 0 && (!LOW || filled >= asked)) load_stage(source.work, step, turn.stage);
#pragma unroll
      for (int each = 0; each < EACH; ++each) {
        const int place = first + each * (LOADING / 8), from = source.from[each];
        const unsigned to = ring.rows(turn.stage) + place * ROW + (chunk ^ place % 8) * 16;
        const bool there = from >= 0;
        const unsigned short* at = task.x + (size_t)(there ? from : 0) * DEPTH + step * INPUTS + chunk * 8;
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) copy_sixteen(to + panel * PANEL_BYTES, at + panel * 64, there);
      }
      arrive_with_copies(ring.full(turn.stage));
      ++filled;
      turn.advance();
    }
  }

  // Of low tiles it is known which is next before its turn comes.
  __device__ __forceinline__ void run(int items) {
    if constexpr (LOW) {
      if (blockIdx.x >= items) return;
      TileSource next(task, blockIdx.x, thread / 8);
      for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const TileSource now = next;
        if (item + (int)gridDim.x < items) next = TileSource(task, item + gridDim.x, thread / 8);
        fill(now);
      }
    } else {
      for (int item = blockIdx.x; item < items; item += gridDim.x) fill(TileSource(task, item, thread / 8));
    }
  }
};

struct TileMultiplier {
  const TileTask& task;
  const TileRing ring;
  float* roots;
  int* targets;
  int group, warp, lane;
  RingTurn<STAGES> turn;

  // What rows are multiplied by for their norm, and where results of places lie.
  __device__ void read_places(const WorkTile& work) const {
    asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * 128) : "memory");
    const int place = threadIdx.x;
    if (place < PLACES) {
      const bool used = place < work.rows;
      const int row = work.tile * PLACES + place, pair = used ? task.order[row] : 0;
      const bool waits = GATED && used && task.squares;
      roots[place] = waits ? root_scale(task.squares[pair / RANKS], task.inverse_depth, task.eps) : 1.f;
      targets[place] = GATED ? row : pair;
    }
    asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * 128) : "memory");
  }

  __device__ int first_output(const WorkTile& work, int half) const {
    return work.band * BAND + group * GROUP_OUTPUTS + (GATED ? half * 32 + warp * 8 : half * 64 + warp * 16);
  }

  // A lane's lines: those of a gate stand before those that it gates.
  __device__ void read_scales(const WorkTile& work, unsigned (&mine)[HALVES * 2]) const {
#pragma unroll
    for (int own = 0; own < HALVES * 2; ++own) {
      const int output = first_output(work, own / 2) + (GATED ? 0 : own % 2 * 8);
      const int line = min(output, OUTPUTS - 8) + (GATED && own % 2 ? OUTPUTS : 0);
      const unsigned* at = task.scales + work.expert * task.next_expert + (line >> task.shift);
      mine[own] = lane < STEPS ? __ldg(at + lane * task.next_group) : 0;
    }
  }

  template <int ROWS>
  __device__ __forceinline__ void sum_up(TileSums<ROWS>& sums, const WorkTile& work) {
    unsigned left[2][HALVES][4], mine[HALVES * 2], scales[HALVES * 2];
    if constexpr (CODED) {
      read_scales(work, mine);
#pragma unroll
      for (int at = 0; at < 2 * HALVES * 4; ++at)
        asm volatile("mov.u32 %0, 0;" : "=r"(left[at / (HALVES * 4)][at / 4 % HALVES][at % 4]));
    }
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
#pragma unroll
      for (int at = 0; at < ROWS / 2; ++at) sums[half][at] = 0.f;
      hold(sums[half]);
    }
    int before = 0;
    for (int step = 0; step < STEPS; ++step) {
      await_phase(ring.full(turn.stage), turn.parity);
      publish();  // rows were not copied by TMA
      if constexpr (CODED) {
#pragma unroll
        for (int own = 0; own < HALVES * 2; ++own) scales[own] = __shfl_sync(~0u, mine[own], step);
        multiply_codes<ROWS>(sums, left, ring, turn.stage, scales, group, warp, lane);
      } else {
        multiply_numbers<ROWS>(sums, ring, turn.stage, group);
        await_products<1>();
      }
      if (step > 0 && lane == 0) arrive(ring.empty(before));
      before = turn.stage;
      turn.advance();
    }
    await_products<0>();
#pragma unroll
    for (int half = 0; half < HALVES; ++half) hold(sums[half]);
    if (lane == 0) arrive(ring.empty(before));
  }

  // Eight outputs of eight places: two neighbours a lane.
  __device__ __forceinline__ void store(unsigned eight, const WorkTile& work, int column, int output) const {
    const unsigned pair = turned(eight);
    const int place = column + lane / 4;
    if (place < work.rows && output < OUTPUTS)
      *reinterpret_cast<unsigned*>(task.out + (size_t)targets[place] * OUTPUTS + output + lane % 4 * 2) = pair;
  }

  template <int ROWS>
  __device__ __forceinline__ void end(const TileSums<ROWS>& sums, const WorkTile& work) const {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int output = first_output(work, half);
#pragma unroll
      for (int eight = 0; eight < ROWS / 8; ++eight) {
        const float* four = sums[half] + eight * 4;
        if constexpr (GATED) {
          float joined[2];
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            const float root = roots[eight * 8 + lane % 4 * 2 + side];
            joined[side] = gated(__fmul_rn(rounded(four[side]), root), __fmul_rn(rounded(four[side + 2]), root));
          }
          store(pair_of(joined[0], joined[1]), work, eight * 8, output);
        } else {
          store(pair_of(four[0], four[1]), work, eight * 8, output);
          store(pair_of(four[2], four[3]), work, eight * 8, output + 8);
        }
      }
    }
  }

  template <int ROWS>
  __device__ __forceinline__ void multiply(const WorkTile& work) {
    TileSums<ROWS> sums;
    sum_up<ROWS>(sums, work);
    end<ROWS>(sums, work);
  }

  __device__ void run(int items) {
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
      const WorkTile work(task, item);
      read_places(work);
      if (work.rows <= FEWER)
        multiply<FEWER>(work);
      else
        multiply<PLACES>(work);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, CTAS)
    product(const __grid_constant__ TensorMap map, const unsigned short* x, const unsigned* scales, const int* order,
            const int* tiles, const int* count, const long long* squares, unsigned short* out, int most_tiles, int next_expert,
            int next_group, int shift, float inverse_depth, float eps) {
  extern __shared__ unsigned char memory[];
  const unsigned begin = (shared_address(memory) + 1023) & ~1023u;
  unsigned char* mine = memory + (begin - shared_address(memory));
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const TileRing ring{begin};
  const TileTask task{&map, x,          scales,      order,      tiles, count,         squares,
                      out,  most_tiles, next_expert, next_group, shift, inverse_depth, eps};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(ring.full(stage), LOADING + 1);
      barrier_init(ring.empty(stage), GROUPS * 4);
    }
    publish_barriers();
  }
  __syncthreads();
  TileFiller filler{task, ring, (int)threadIdx.x - GROUPS * 128};
  // Tiles were there before the kernel before began.
  if (LOW && !GATED && warp >= GROUPS * 4 && blockIdx.x < *count * BANDS) filler.ask(WorkTile(task, blockIdx.x));
  await_previous();
  allow_next();
  const int items = *count * BANDS;
  if (warp >= GROUPS * 4) {
    if constexpr (!LOW) give_registers<56>();
    filler.run(items);
  } else {
    if constexpr (!LOW) take_registers<224>();
    TileMultiplier{
        task,     ring, reinterpret_cast<float*>(mine + ROOTS_AT), reinterpret_cast<int*>(mine + TARGETS_AT), warp / 4,
        warp % 4, lane}
        .run(items);
  }
}
