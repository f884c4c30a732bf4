// What stands between the products of queries, keys and values and of the output, for one row of one sequence; grid (K/V heads
// times CTAs).
//
// Each CTA makes its group's queries anew, and the one with the last split makes the row's own key and value too. Splits are
// left to the CTAs that merge their columns. All that is older than the product before is read while that drains. That is
// safe, for the product lets its dependents begin only after its own wait (`engine_of` in linear/kernel.py). What changes from
// kernel to kernel is read past the first cache, which may hold it as it was.

#include "build.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "cluster.cuh"
#include "pdl.cuh"
#include "span_attention/alone/gates.cuh"
#include "span_attention/alone/instructions.cuh"
#include "span_attention/alone/queries.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/alone/sizes.cuh"
#include "span_attention/alone/tiles.cuh"
#include "span_attention/alone/heads.cuh"
#include "span_attention/hopper/powers.cuh"

// A split's part: its running softmax, operation by operation that of `softmax.py`, and what becomes of it. A lane has a row,
// and of the warp's columns eight neighbours.

__device__ __forceinline__ bool hidden(int position, const SplitSpan& span) {
  return position > span.last || (WINDOW > 0 && position < span.first);
}

// Leaves the scores of a warp's positions for all warps of the team; those that the row does not see are hidden.
__device__ __forceinline__ void score(const RowQueries& queries, const Keys& keys, float (&scores)[GROUP][SCORES], int first,
                                      const SplitSpan& span, int warp, int lane) {
  float sums[2][4] = {};
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
#pragma unroll
    for (int each = 0; each < 2; ++each)
      multiply(sums[each], queries.pairs[step][0], queries.pairs[step][1], keys.pairs[each][step / 2][step % 2 * 2],
               keys.pairs[each][step / 2][step % 2 * 2 + 1]);
  }
  if (lane / 4 >= GROUP) return;
#pragma unroll
  for (int each = 0; each < 2; ++each) {
    const int place = warp * OWN_TOKENS + each * 8 + lane % 4 * 2, position = first + place;
    *reinterpret_cast<float2*>(&scores[lane / 4][place]) = make_float2(
        hidden(position, span) ? -INFINITY_F : sums[each][0], hidden(position + 1, span) ? -INFINITY_F : sums[each][1]);
  }
}

struct RowPart {
  float best = NOTHING, mass[4] = {}, sum[4][4] = {};

  // Adds a tile whose scores all warps have left.
  __device__ __forceinline__ void take(const float (&scores)[GROUP][SCORES], const Values& values, float scale, int lane) {
    float2 own[TOKEN_STEPS][2];
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step) {
      const float* from = scores[lane / 4 % GROUP] + step * 16 + lane % 4 * 2;
      own[step][0] = *reinterpret_cast<const float2*>(from), own[step][1] = *reinterpret_cast<const float2*>(from + 8);
    }
    float most = fmaxf(own[0][0].x, own[0][0].y);
#pragma unroll
    for (int each = 1; each < TOKEN_STEPS * 2; ++each)
      most = fmaxf(most, fmaxf(own[each / 2][each % 2].x, own[each / 2][each % 2].y));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const float higher = fmaxf(best, upwards(__fmul_rn(most, scale))), offset = __fsub_rn(0.f, higher);
    const float fade = fade_of(__fsub_rn(best, higher));
    best = higher;
    mass[0] = __fmul_rn(mass[0], fade);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      sum[pair][0] = __fmul_rn(sum[pair][0], fade), sum[pair][1] = __fmul_rn(sum[pair][1], fade);
#pragma unroll
    for (int step = 0; step < TOKEN_STEPS; ++step) {
      unsigned weights[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        weights[half] = pair_of(exp2_approx_ftz(__fmaf_rn(own[step][half].x, scale, offset)),
                                exp2_approx_ftz(__fmaf_rn(own[step][half].y, scale, offset)));
#pragma unroll
      for (int pair = 0; pair < 4; ++pair)
        multiply(sum[pair], weights[0], weights[1], values.pairs[step * 2][pair], values.pairs[step * 2 + 1][pair]);
      multiply(mass, weights[0], weights[1], ONES, ONES);
    }
  }

  // Sends it to the CTAs that merge its columns.
  __device__ __forceinline__ void send_to_all(TeamShares& shares, int split, int warp, int lane) const {
    const int row = lane / 4, column = warp * OWN_COLUMNS + lane % 4 * 8, rank = column / COLUMNS, in_rank = column % COLUMNS;
    if (row >= GROUP) return;
    const unsigned barrier = address_at(shared_address(&shares.there), rank);
    const unsigned to = address_at(shared_address(&shares.parts[split][row][in_rank]), rank);
    send(to, sum[0][0], sum[0][1], sum[1][0], sum[1][1], barrier);
    send(to + 16, sum[2][0], sum[2][1], sum[3][0], sum[3][1], barrier);
    if (in_rank == 0) send(address_at(shared_address(&shares.sums[split][row]), rank), best, mass[0], barrier);
  }
};

// Adds the parts of this CTA's columns, in order, as `merge.py` does; a thread has two columns of a row, and its gate.
__device__ __forceinline__ void merge(const TeamShares& shares, int count, int thread, float gate, unsigned short* out) {
  const int row = thread / (COLUMNS / 2), column = thread % (COLUMNS / 2) * 2;
  float2 sums[SPLITS], parts[SPLITS];
  float best = NOTHING, mass = 0.f;
#pragma unroll
  for (int split = 0; split < SPLITS; ++split) {  // one that is not there counts as zero
    const bool there = split < count;
    const float2 both = shares.sums[split][row], part = *reinterpret_cast<const float2*>(&shares.parts[split][row][column]);
    sums[split] = make_float2(there ? both.x : NOTHING, there ? both.y : 0.f);
    parts[split] = make_float2(there ? part.x : 0.f, there ? part.y : 0.f);
    best = fmaxf(best, sums[split].x);
  }
  float2 sum = make_float2(0.f, 0.f);
#pragma unroll
  for (int split = 0; split < SPLITS; ++split) {
    const float by = fade_of(__fsub_rn(sums[split].x, best));
    mass = __fmaf_rn(sums[split].y, by, mass);
    sum.x = __fmaf_rn(parts[split].x, by, sum.x), sum.y = __fmaf_rn(parts[split].y, by, sum.y);
  }
  const float by = mass > 0.f ? mass : 1.f;
  unsigned pair = pair_of(div_full(sum.x, by), div_full(sum.y, by));
  if constexpr (GATED) pair = pair_of(__fmul_rn(low_of(pair), gate), __fmul_rn(high_of(pair), gate));
  *reinterpret_cast<unsigned*>(out + row * SIZE + column) = pair;
}

constexpr int LINES = (ROWS + WARPS - 1) / WARPS;  // heads that a warp makes at most

extern "C" __global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    attend_alone(const unsigned short* mixed, const long long* squares, const unsigned short* bias, const unsigned short* norm,
                 const float* cosines, const float* sines, const long long* slots, unsigned short* kv, const int* table,
                 const long long* lengths, const long long* reaches, const unsigned short* gates, unsigned short* out,
                 int places, int columns, int kv_heads, float inverse_width, float eps, float offset, float scale) {
  __shared__ TeamShares shares;
  const int all_warps = __shfl_sync(~0u, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
  const int team = all_warps / TEAM_WARPS, warp = all_warps % TEAM_WARPS;
  const int rank = blockIdx.x % CTAS, head = blockIdx.x / CTAS, room = columns * BLOCK;
  const int length = min((int)__ldcg(lengths), room), total = min((int)__ldcg(reaches), room), split = team * CTAS + rank;
  const SplitSpan span(length, total, split);
  const int count = span.splits(), last_tile = span.last / TOKENS, slot = (int)__ldcg(slots);
  const unsigned barrier = shared_address(&shares.there);
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    publish_barriers();
    expect_bytes(barrier, count * SPLIT_BYTES);
  }
  __syncwarp();
  come_by();
  // Whether the row sees itself: it has a slot of its own, and as keys of a single tile without a block are zero, a block.
  const int block = span.last == length ? __ldcg(table + length / BLOCK) : 0;
  const bool own = span.last == length && slot == block * BLOCK + length % BLOCK;
  const bool single = span.end - span.begin == 1, sees = own && (block != 0 || !single);
  const Paged paged{kv + head * SIZE,
                    kv + ((size_t)places * kv_heads + head) * SIZE,
                    table,
                    kv_heads,
                    span.first,
                    span.last + 1 - own,
                    single};
  const bool works = span.begin < span.end;
  Keys keys;
  Values values;
  if (works) {
    const int blocks = paged.block_of(span.begin, lane);
    keys.load(paged, span.begin, blocks, warp, lane), values.load(paged, span.begin, blocks, warp, lane);
  }
  const Sources from{mixed, bias, norm, squares, cosines, sines, inverse_width, eps, offset};
  const int rows = rank == (count - 1) % CTAS ? ROWS : GROUP;
  Line lines[LINES];
#pragma unroll
  for (int each = 0; each < LINES; ++each)
    if (all_warps + each * WARPS < rows) lines[each].find(from, all_warps + each * WARPS, head, kv_heads, lane);
  const float by = from.scale();
  // The next kernel reads nothing but weights before it waits for this one, and lets none begin before that.
  allow_next();
  if (works) keys.arrange(lane), values.arrange();
  await_previous();
#pragma unroll
  for (int each = 0; each < LINES; ++each)
    if (all_warps + each * WARPS < rows) lines[each].load(from);
  const int merged = threadIdx.x / (COLUMNS / 2);  // the head that the thread merges, if it does
  float gate = 1.f;
  if constexpr (GATED)
    if (merged < GROUP) gate = gate_of(__ldcg(gates + head * GROUP + merged), by);
#pragma unroll
  for (int each = 0; each < LINES; ++each) {
    if (all_warps + each * WARPS >= rows) continue;
    unsigned pairs[2];
    lines[each].make(from, by, pairs);
    const int row = lines[each].row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = half * SIZE / 2 + lane * 2;
      *reinterpret_cast<unsigned*>(&shares.rows[row][column]) = pairs[half];
      if (row < KEY) continue;
      const size_t line = ((size_t)(row - KEY) * places + slot) * kv_heads + head;
      *reinterpret_cast<unsigned*>(kv + line * SIZE + column) = pairs[half];
    }
  }
  __syncthreads();
  RowPart part;
  if (works) {
    RowQueries queries;
    queries.read(shares.rows, lane);
#pragma unroll 1
    for (int at = span.begin;; ++at) {
      const bool more = at + 1 < span.end, has_own = at == last_tile && sees;
      float (&scores)[GROUP][SCORES] = shares.scores[team][at % 2];
      int blocks;
      if (has_own) keys.put(shares.rows[KEY], length % TOKENS, warp, lane);
      score(queries, keys, scores, at * TOKENS, span, warp, lane);
      if (more) {
        blocks = paged.block_of(at + 1, lane);
        keys.load(paged, at + 1, blocks, warp, lane);
      }
      if (at > span.begin) values.arrange();
      if (has_own) values.put(shares.rows[VALUE], length % TOKENS, warp, lane);
      meet(team);
      part.take(scores, values, scale, lane);
      if (!more) break;
      values.load(paged, at + 1, blocks, warp, lane);
      keys.arrange(lane);
    }
  }
  go_on();
  if (works) part.send_to_all(shares, split, warp, lane);
  if (threadIdx.x >= GROUP * COLUMNS / 2) return;
  await_phase(barrier, 0);
  merge(shares, count, threadIdx.x, gate, out + head * GROUP * SIZE + rank * COLUMNS);
}
