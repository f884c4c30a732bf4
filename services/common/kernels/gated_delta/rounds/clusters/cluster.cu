// A round of few sequences; grid (heads times CTAs, sequences). The CTAs of a cluster have a head together.
//
// Each makes some of the rows and sends them to the others, multiplies its columns of the state, and ends some of the rows.
// What lies between, products of keys to factors, each does for itself. It has two teams of warps. Of two blocks the first
// team takes the state through the first and reads the second; the other makes what both blocks' rows read by, and reads the
// first with the state as it was.

#include "build.cuh"
#include "barrier.cuh"
#include "cluster.cuh"
#include "pdl.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/block.cuh"
#include "gated_delta/rounds/clusters/fresh.cuh"
#include "gated_delta/rounds/clusters/shares.cuh"
#include "gated_delta/rounds/ends.cuh"
#include "gated_delta/rounds/factors.cuh"
#include "gated_delta/rounds/kept.cuh"
#include "gated_delta/rounds/parts.cuh"
#include "gated_delta/rounds/rows.cuh"
#include "gated_delta/rounds/state.cuh"

constexpr int TEAM_THREADS = GROUP * WARP;
// Barriers: of all, of either team, and of what one team waits for from the other.
constexpr int OF_ALL = 0, OF_TEAM = 1, SECOND_THERE = 3, FIRST_SOLVED = 4;

__device__ __forceinline__ void meet(int which, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
__device__ __forceinline__ void tell(int which) { asm volatile("bar.arrive %0, %1;" ::"r"(which), "n"(THREADS) : "memory"); }
__device__ __forceinline__ void hand_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// What reads (or updates) of a block multiply a state by, by one team or by both, which meet at a barrier.
template <bool READS>
__device__ __forceinline__ void make_factors(Block& block, int which, bool both, int rank, int warp, int lane) {
  const int thread = warp * WARP + lane, other = warp + GROUP;
  if (both)
    weigh(block, thread, !READS, READS);
  else
    weigh<2>(block, thread, !READS, READS, TEAM_THREADS);
  meet(which, both ? THREADS : TEAM_THREADS);
  const unsigned values = warp / HOLDERS == rank;
  if (both)
    factor<READS>(block, warp, lane, values);
  else
    factor<READS, 2>(block, warp, lane, values | (other / HOLDERS == rank ? 2 : 0));
  hand_to_products();
}

// A lane's numbers of the state as they were: copied from memory, or from registers.
__device__ __forceinline__ void fetch(HeadShares& shares, const float* state, bool there, int lane) {
  const float* own = state + (lane % 4 * 2 * DIM + lane / 4 * 2);
#pragma unroll
  for (int pair = 0; pair < DIM / 4; ++pair)
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(&shares.state[pair][threadIdx.x % TEAM_THREADS])),
        "l"(own + (pair / 2 * 8 + pair % 2) * DIM), "r"(there ? 8 : 0)
        : "memory");
}
__device__ __forceinline__ void await_fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void keep(HeadShares& shares, const float (&x)[DIM / 2]) {
#pragma unroll
  for (int pair = 0; pair < DIM / 4; ++pair) {
    const int number = pair / 2 * 4 + pair % 2;
    shares.state[pair][threadIdx.x % TEAM_THREADS] = make_float2(x[number], x[number + 2]);
  }
}
template <int COUNT>
__device__ __forceinline__ void recall(const HeadShares& shares, int first, float (&x)[COUNT]) {
#pragma unroll
  for (int pair = 0; pair < COUNT / 2; ++pair) {
    const int number = pair / 2 * 4 + pair % 2;
    const float2 both = shares.state[first / 2 + pair][threadIdx.x % TEAM_THREADS];
    x[number] = both.x, x[number + 2] = both.y;
  }
}
__device__ __forceinline__ void take_kept(const HeadShares& shares, State& state) {
  float x[DIM / 2];
  recall(shares, 0, x);
  state.take(x);
}

// The first team: its state after a block, stored where that is `complete` and kept where a block of the next turn follows.
__device__ __forceinline__ void move(HeadShares& shares, Block& block, State& state, float* own_state, bool complete,
                                     bool keeps, int column, int lane) {
  float found[BLOCK / 2], x[DIM / 2];
  state.times(shared_address(block.factors), found);
  add_bases(block, found, column, lane);
  const auto was = [&](int first, float (&old)[LOADED]) { recall(shares, first, old); };
  advance(block, found, own_state, complete, was, x, lane);
  if (keeps) keep(shares, x);
  state.take(x);
}

extern "C" __global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    delta_cluster(const half_t* into, half_t* ring, const float* conv, const float* decays, const float* bias,
                  const half_t* norm, const int64* slots, const int64* lengths, const int64* foldeds, float* states,
                  half_t* out, int stride, int width, int ring_rows, int k_heads, int heads, int features, int kept,
                  float scale, float eps) {
  extern __shared__ unsigned char raw[];
  // The tensor cores' swizzle follows addresses.
  HeadShares& shares = *reinterpret_cast<HeadShares*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  Memory& memory = shares.memory;
  const unsigned rows_there = shared_address(&shares.rows), reads_there = shared_address(&shares.reads);
  const int warp = __shfl_sync(~0u, threadIdx.x / WARP, 0);
  int lane = threadIdx.x % WARP;
  allow_next();
  if (threadIdx.x == 0) {
    barrier_init(rows_there, WARPS * (CTAS - 1)), barrier_init(reads_there, 2 * HOLDERS * (CTAS - 1));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  come_by();
  const int rank = blockIdx.x % CTAS, head = blockIdx.x / CTAS, sequence = blockIdx.y;
  const int slot = (int)slots[sequence], length = (int)lengths[sequence], folded = (int)foldeds[sequence];
  const int reach = length + width, fold = length / BLOCK * BLOCK;
  const int group = heads / k_heads, k_head = head / group;
  const DeltaSpan span{into + (size_t)sequence * width * features,
                       ring + (size_t)slot * ring_rows * kept,
                       length,
                       ring_rows,
                       features,
                       kept,
                       k_head * DIM,
                       (k_heads + k_head) * DIM,
                       (2 * k_heads + head) * DIM,
                       kept - 2 * heads + head,
                       heads,
                       head,
                       head % group == 0,
                       scale};
  const int team = warp / GROUP, first_column = rank * COLUMNS + warp % HOLDERS * 16;
  float* own_state = states + ((size_t)slot * heads + head) * (DIM * DIM) + first_column;
  const ToEnd ends{reads_there, rank, warp % GROUP < HOLDERS};
  State state;
  bool waited = false;
  go_on();
  unsigned turn = 0;
#pragma unroll 1
  for (int start = folded; start < reach; ++turn) {
    asm volatile("" : "+r"(lane));  // what follows from it is computed again, not kept
    // A block whose rows are all old is alone: it does not wait.
    const int next = start + BLOCK, count = next > length && next < reach ? TOGETHER : 1, end = start + count * BLOCK;
    const int old = min(max(length - start, 0), count * BLOCK), real = min(reach, end) - start;
    const int place = start % ring_rows;
    const bool moves = next<reach, apart = real - old> ALONE_ROWS;
    unsigned sent = 0;
    const Everywhere everywhere{rows_there, rank, sent};
    if (turn == 0 && team == 0) fetch(shares, own_state, folded > 0, lane);
    make_rows<false, ABREAST, WARPS * CTAS>(memory, span, start, place, 0, old, warp * CTAS + rank, lane, everywhere, [&] {
      if (turn > 0) return;
      load_taps(memory, span, conv, stride, warp, lane);
      __syncthreads();
    });
    for (int row = real + warp; row < count * BLOCK; row += WARPS) {
      Block& block = memory.blocks[row / BLOCK];
      const float none[4] = {0.f, 0.f, 0.f, 0.f};
      clear_row(block, row % BLOCK, lane);
      store_halves(block.values, row % BLOCK, lane * 4, none, 1.f);
    }
    if (!apart) announce(rows_there, sent, rank, lane);
    FreshRows found[UNITS];
    FreshGates gates;
    End ended;
    // Few rows each CTA makes for itself, one at a time.
    const int first_unit = apart ? warp * CTAS + rank : warp;
#pragma unroll
    for (int each = 0; each < UNITS; ++each)
      found[each].find(span, start, place, old, real, first_unit + each * WARPS * CTAS, apart ? 2 : 1, lane);
    if (warp == WARPS - 1) gates.find(span, decays, bias, start, place, real, count, rank == 0, lane);
    ended.find(span, norm, start, old, real, rank, warp, lane);
    if (turn == 0 && team == 0) await_fetched(), take_kept(shares, state);
    if (count > 1) {
      if (turn == 0) __syncthreads();
      if (team == 1) take_kept(shares, state);
    }
    if (end > length && !waited) {
      await_previous();
      waited = true;
    }
    Raw<2> raws[UNITS];
#pragma unroll
    for (int each = 0; each < UNITS; ++each) raws[each] = found[each].load(features);
    if (warp == WARPS - 1) gates.load(span.gates_apart);
    ended.load();
    if (warp == WARPS - 1) gates.make(memory, span.gates_apart);
#pragma unroll 1
    for (int each = 0; each < UNITS; ++each) {
      const FreshRows& own = found[0];
      if (own.count <= 0) break;
      if (apart) {
        make_part<2>(memory, span, raws[0], own.row, real, own.part, lane, everywhere);
        everywhere.count(own.part, own.count);
      } else {
        Raw<1> raw;
#pragma unroll
        for (int tap = 0; tap < TAPS; ++tap) raw.rows[tap] = raws[0].rows[tap];
        make_part<1>(memory, span, raw, own.row, real, own.part, lane);
      }
      if (apart || rank == 0) own.store(span, place, raws[0]);
      found[0] = found[UNITS - 1], raws[0] = raws[UNITS - 1];
    }
    if (apart) announce(rows_there, sent, rank, lane);
    __syncthreads();
    await_phase(rows_there, turn % 2);
    if (count > 1)
      clear_broken(memory, 2, warp, lane);
    else
      clear_broken(memory, 1, warp, lane);
    const int which = count > 1 ? OF_TEAM + team : OF_ALL, threads = count > 1 ? TEAM_THREADS : THREADS;
    if (team < count) couple(memory.blocks[team], warp % GROUP, lane, start + (team + 1) * BLOCK > length);
    meet(which, threads);
    if (real > 2) {
      if (team < count && warp % GROUP == 0) invert(memory.blocks[team], real - team * BLOCK, lane);
      meet(which, threads);
    }
    const int column = first_column + lane / 4 * 2;
    const bool reads = team == 0 ? end >= reach : count > 1;
    if (team == 0 && moves) {
      if (count > 1) tell(FIRST_SOLVED);
      make_factors<false>(memory.blocks[0], OF_TEAM, false, rank, warp, lane);
      meet(OF_TEAM, TEAM_THREADS);
      move(shares, memory.blocks[0], state, own_state, next == fold && ends.holds, end < reach, column, lane);
      if (count > 1) meet(SECOND_THERE, THREADS);
    } else if (end >= reach) {
      // By one team of both blocks, or by both teams of the only one.
#pragma unroll 1
      for (int each = count - 1; each >= 0; --each) {
        if (each < count - 1) tell(SECOND_THERE), meet(FIRST_SOLVED, THREADS);
        make_factors<true>(memory.blocks[each], which, count == 1, rank, count > 1 ? warp - GROUP : warp, lane);
      }
      meet(which, threads);
    }
    if (reads) read_last(memory.blocks[team == 0 ? count - 1 : 0], state, column, lane, ends);
    if (ends.holds) announce(reads_there, reads ? READ_BYTES : 0, rank, lane);
    __syncthreads();
    await_phase(reads_there, turn % 2);
    half_t* to = out + (((size_t)sequence * width + (start + ended.row - length)) * heads + head) * DIM + lane * 4;
    if (ended.row < real) end_row(memory.blocks[ended.row / BLOCK], ended.row % BLOCK, lane, ended.z, ended.weight, eps, to);
    start = end;
    // Nobody sends rows of the next blocks while these are in use.
    if (start < reach) come_by(), go_on();
  }
}
