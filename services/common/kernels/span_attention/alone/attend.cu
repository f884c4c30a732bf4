// What stands between the products of queries, keys and values and of the output, for one row of one sequence; grid (K/V heads
// times CTAs).
//
// Each CTA makes its group's queries anew, and the one with the last split makes the row's own key and value too. Splits are
// left to the CTAs that merge their columns. All that is older than the product before is read while that drains. That is
// safe, for the product lets its dependents begin only after its own wait (`engine_of` in linear/kernel.py). What changes from kernel to kernel is read past the first
// cache, which may hold it as it was.

#include "build.cuh"
#include "barrier.cuh"
#include "cluster.cuh"
#include "pdl.cuh"
#include "span_attention/alone/instructions.cuh"
#include "span_attention/alone/parts.cuh"
#include "span_attention/alone/queries.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/alone/sizes.cuh"
#include "span_attention/alone/tiles.cuh"
#include "span_attention/hopper/heads.cuh"

constexpr int LINES = (ROWS + WARPS - 1) / WARPS;  // heads that a warp makes at most

extern "C" __global__ void __cluster_dims__(CTAS, 1, 1) __launch_bounds__(THREADS, 1)
    attend_alone(const unsigned short* mixed, const long long* squares, const unsigned short* bias, const unsigned short* norm,
                 const float* cosines, const float* sines, const long long* slots, unsigned short* kv, const int* table,
                 const long long* lengths, const long long* reaches, unsigned short* out, int places, int columns, int kv_heads,
                 float inverse_width, float eps, float offset, float scale) {
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
  const Paged paged{
      kv + head * SIZE, kv + ((size_t)places * kv_heads + head) * SIZE, table, kv_heads, span.last + 1 - own, single};
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
      score(queries, keys, scores, at * TOKENS, span.last, warp, lane);
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
  merge(shares, count, threadIdx.x, out + head * GROUP * SIZE + rank * COLUMNS);
}
