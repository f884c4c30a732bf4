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

// A box for each half.
__device__ __forceinline__ void load_lines(unsigned to, const TileTask& task, const WorkTile& work, int step,
                                           unsigned barrier) {
  const int first_warp = (work.expert * (GATED ? 2 * OUTPUTS : OUTPUTS) + work.band * BAND) / WARP_OUTPUTS;
#pragma unroll
  for (int half = 0; half < HALVES; ++half)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4, %4, %5}], [%6], %7;" ::"r"(to + half * (WEIGHT_BYTES / HALVES)),
        "l"(task.map), "r"(step * 64), "r"(half * (LANE_WORDS * 2 / HALVES)), "r"(0), "r"(first_warp), "r"(barrier), "l"(USED)
        : "memory");
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
      const int pair = GATED ? task.order[row] : row;  // asked for before it is known whether it is used
      from[each] = place < work.rows ? (GATED ? pair / RANKS : pair) : -1;
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
      if (thread == 0 && filled >= asked) load_stage(source.work, step, turn.stage);
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

  // What is next is known before its turn comes.
  __device__ __forceinline__ void run(int items) {
    if (blockIdx.x >= items) return;
    TileSource next(task, blockIdx.x, thread / 8);
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
      const TileSource now = next;
      if (item + (int)gridDim.x < items) next = TileSource(task, item + gridDim.x, thread / 8);
      fill(now);
    }
  }
};

// A tile, and the pair of row and rank at a thread's place of it: anything where that is not used.
struct TilePlace {
  WorkTile work;
  int pair;

  __device__ __forceinline__ TilePlace(const TileTask& task, int item) : work(task, item) {
    pair = task.order[work.tile * PLACES + min((int)threadIdx.x, PLACES - 1)];
  }

  __device__ __forceinline__ long long squares(const TileTask& task) const {
    return GATED && task.squares && (int)threadIdx.x < work.rows ? task.squares[pair / RANKS] : 0;
  }
};

struct TileMultiplier {
  const TileTask& task;
  const TileRing ring;
  float* roots;
  int* targets;
  int group, warp, lane;
  RingTurn<STAGES> turn;
  int listed = 0;  // where the present tile's places are; others still read those of the tile before

  // What rows are multiplied by for their norm, and where results of places lie.
  __device__ void list_places(const TilePlace& own, long long squares) {
    listed = PLACES - listed;
    const int place = threadIdx.x;
    if (place < PLACES) {
      roots[listed + place] = GATED && task.squares ? root_scale(squares, task.inverse_depth, task.eps) : 1.f;
      targets[listed + place] = GATED ? own.work.tile * PLACES + place : own.pair;
    }
    asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * 128) : "memory");
  }

  __device__ int first_output(const WorkTile& work) const { return work.band * BAND + (group * 4 + warp) * WARP_OUTPUTS; }

  // All outputs of a warp share a scale; of a gate there is one beside that of what it gates.
  __device__ void read_scales(const WorkTile& work, unsigned (&mine)[2]) const {
#pragma unroll
    for (int own = 0; own < 2; ++own) {
      const int line = min(first_output(work), OUTPUTS - WARP_OUTPUTS) + (GATED ? own * OUTPUTS : 0);
      const unsigned* at = task.scales + work.expert * task.next_expert + (line >> task.shift);
      mine[own] = lane < STEPS ? __ldg(at + lane * task.next_group) : 0;
    }
  }

  template <int ROWS>
  __device__ __forceinline__ void sum_up(TileSums<ROWS>& sums, const WorkTile& work) {
    unsigned left[2][HALVES][4], mine[2], scales[2];
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
        for (int own = 0; own < 2; ++own) scales[own] = __shfl_sync(~0u, mine[own], step);
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

  // All outputs of a lane at a place: they are neighbours.
  __device__ __forceinline__ void store(const unsigned (&words)[LANE_WORDS], const WorkTile& work, int place,
                                        int output) const {
    if (place >= work.rows || output >= OUTPUTS) return;
    unsigned* at = reinterpret_cast<unsigned*>(task.out + (size_t)targets[listed + place] * OUTPUTS + output);
    if constexpr (LANE_WORDS == 4)
      *reinterpret_cast<uint4*>(at) = make_uint4(words[0], words[1], words[2], words[3]);
    else if constexpr (LANE_WORDS == 2)
      *reinterpret_cast<uint2*>(at) = make_uint2(words[0], words[1]);
    else
      *at = words[0];
  }

  // A gate's sums, and those that it gates, of two places.
  __device__ __forceinline__ unsigned joined(const float* gates, const float* ups, int place) const {
    float two[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float root = roots[listed + place + side];
      two[side] = gated(__fmul_rn(rounded(gates[side]), root), __fmul_rn(rounded(ups[side]), root));
    }
    return pair_of(two[0], two[1]);
  }

  // Sums of eight outputs of eight places a word, which are turned so that a lane has two neighbours of a place.
  template <int ROWS>
  __device__ __forceinline__ void end(const TileSums<ROWS>& sums, const WorkTile& work) const {
    const int output = first_output(work) + lane % 4 * LANE_WORDS * 2;
#pragma unroll
    for (int eight = 0; eight < ROWS; eight += 8) {
      unsigned words[LANE_WORDS];
#pragma unroll
      for (int word = 0; word < LANE_WORDS; ++word) {
        const float* four = sums[word / (LANE_WORDS / HALVES)] + eight / 2;
        const float* two = four + word % 2 * 2;
        words[word] = turned(GATED ? joined(four, four + 2, eight + lane % 4 * 2) : pair_of(two[0], two[1]));
      }
      store(words, work, eight + lane / 4, output);
    }
  }

  template <int ROWS>
  __device__ __forceinline__ void multiply(const TilePlace& own, long long squares) {
    TileSums<ROWS> sums;
    sum_up<ROWS>(sums, own.work);
    list_places(own, squares);
    end<ROWS>(sums, own.work);
  }

  // What is next, and whose rows it has, comes while this one is multiplied.
  __device__ __forceinline__ void run(int items) {
    if (blockIdx.x >= items) return;
    TilePlace next(task, blockIdx.x);
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
      const TilePlace now = next;
      const long long squares = now.squares(task);
      if (item + (int)gridDim.x < items) next = TilePlace(task, item + gridDim.x);
      if (now.work.rows <= FEWER)
        multiply<FEWER>(now, squares);
      else
        multiply<PLACES>(now, squares);
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
    if constexpr (!LOW) give_registers<72>();
    filler.run(items);
  } else {
    if constexpr (!LOW) take_registers<216>();
    TileMultiplier{
        task,     ring, reinterpret_cast<float*>(mine + ROOTS_AT), reinterpret_cast<int*>(mine + TARGETS_AT), warp / 4,
        warp % 4, lane}
        .run(items);
  }
}
