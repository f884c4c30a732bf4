// All that a block's reads and its states need and that no state enters; grid (blocks * key heads, sequences).
//
// A CTA has a block of a key head: its queries and keys are made once, and two value heads side by side go on from there.
// TMA stores what they make.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "warp.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/block.cuh"
#include "gated_delta/rounds/factors.cuh"
#include "gated_delta/rounds/memory.cuh"
#include "gated_delta/rounds/rows.cuh"
#include "gated_delta/rounds/view.cuh"

// What a CTA keeps of a key head and of two of its value heads; the functions of `rounds` see one of them at a time.

struct ChunkPair {
  struct Own {
    unsigned char values[2][2][ROWS_BYTES];
    float lower[BLOCK][SMALL_PITCH], reads[BLOCK][SMALL_PITCH], solved[BLOCK][SMALL_PITCH], half[BLOCK][SMALL_PITCH];
    half_t weights[2][2][2][BLOCK][HALF_PITCH];
    float back[2][BLOCK];
    int64 units[BLOCK];
    float ill[4][BLOCK], beta[BLOCK], down[BLOCK], since[BLOCK], until[BLOCK];
  };
  unsigned char factors[2][2][LINES_BYTES];
  unsigned char keys[2][2][ROWS_BYTES], queries[2][2][ROWS_BYTES];
  alignas(1024) Own own[2];
  float base[LINES][PITCH], query[BLOCK][PITCH];
  float conv[TAPS][4][DIM];
};
static_assert(sizeof(ChunkPair) == PAIR_BYTES, "as `source.py` counts");
static_assert(sizeof(ChunkPair::Own) % 128 == 0, "rows of eight keep their place among banks");

struct ChunkBlock : View {
  __device__ ChunkBlock(ChunkPair& pair, int which) : ChunkBlock(pair, pair.own[which]) {}
  __device__ ChunkBlock(ChunkPair& pair, ChunkPair::Own& own)
      : View{pair.factors, pair.keys,  pair.queries, own.values,  pair.base, pair.query, own.lower,
             own.reads,    own.solved, own.half,     own.weights, own.back,  own.units,  Ills{pair.own[0].ill, own.ill},
             own.beta,     own.down,   own.since,    own.until} {}
};

struct ChunkMemory {
  struct Blocks {
    ChunkBlock only;
    __device__ ChunkBlock& operator[](int) { return only; }
  } blocks;
  struct Taps {
    float (&conv)[TAPS][4][DIM];
    int own;
    struct Parts {
      float (&parts)[4][DIM];
      int own;
      __device__ float* operator[](int part) const { return parts[part < 2 ? part : 2 + own]; }
    };
    __device__ Parts operator[](int tap) const { return {conv[tap], own}; }
  } conv;

  __device__ ChunkMemory(ChunkPair& pair, int which) : blocks{ChunkBlock(pair, which)}, conv{pair.conv, which} {}
};

__device__ __forceinline__ void load_tap_weights(ChunkPair& pair, const DeltaSpan& span, const float* conv, int stride,
                                                 int first, int last, int warp, int lane) {
  const int parts = last - first;
#pragma unroll 1
  for (int each = warp; each < TAPS * parts; each += WARPS) {
    const int tap = each / parts, part = first + each % parts;
    const float* from = conv + tap * stride + span.channel(part);
    *reinterpret_cast<float4*>(&pair.conv[tap][part][lane * 4]) = *reinterpret_cast<const float4*>(from + lane * 4);
  }
}

// Which part of which of the heads: 0 and 1 are queries and keys, others the values of a head.
struct PartUnit {
  int row, part, own;
  __device__ PartUnit(int unit, int first, int parts)
      : row(unit / parts * 2), part(first + unit % parts), own(part < 2 ? 0 : part - 2) {}
};

// Makes parts from `first` on of all rows, two neighbours at a time; what the next need is asked for meanwhile.
__device__ __forceinline__ void make_all(ChunkPair& pair, const DeltaSpan& span, int start, int place, int real, int first,
                                         int parts, int warp, int lane) {
  const int last = (real + 1) / 2 * parts;
  int unit = warp;
  Raw<2> raw, ahead;
  if (unit < last) {
    const PartUnit own(unit, first, parts);
    raw = load_raw<2>(span, start, place, own.row, real, own.part, lane);
  }
#pragma unroll 1
  for (; unit < last; unit += WARPS) {
    const PartUnit now(unit, first, parts), after(unit + WARPS, first, parts);
    if (unit + WARPS < last) ahead = load_raw<2>(span, start, place, after.row, real, after.part, lane);
    ChunkMemory memory(pair, now.own);
    make_part<2>(memory, span, raw, now.row, real, min(now.part, 2), lane);
    raw = ahead;
  }
}

// A lane for each row: its rate and its decay.
__device__ __forceinline__ void make_rates(ChunkBlock block, const DeltaSpan& span, float decay, float bias, int start,
                                           int place, int real, int row) {
  half_t logit = 0, slope = 0;
  if (row < real) {
    const half_t* gate = span.row(start + row, place + row) + span.gates;
    logit = gate[0], slope = gate[span.gates_apart];
  }
  set_rate(block, logit, slope, row < real, decay, bias, row);
}

__device__ __forceinline__ void store_box(const TensorMap* map, int column, int row, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(column), "r"(row),
               "r"(shared_address(from))
               : "memory");
}
__device__ __forceinline__ void store_bytes(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}

// The first warp: hands a head's factors and bases, and a key head's keys, to TMA.
__device__ __forceinline__ void store_block(const ChunkBlock& block, const TensorMap* factors, const TensorMap* keys,
                                            float* bases, int own, int shared, bool keeps_keys, int lane) {
  store_bytes(bases + ((size_t)own * LINES + lane) * DIM, block.base[lane], DIM * 4);
  if (lane == 0) {
#pragma unroll
    for (int each = 0; each < 4; ++each) {
      store_box(factors, each % 2 * PANEL, (own * 2 + each / 2) * LINES, block.factors[each / 2][each % 2]);
      if (keeps_keys) store_box(keys, each % 2 * PANEL, (shared * 2 + each / 2) * BLOCK, block.keys[each / 2][each % 2]);
    }
  }
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// What reads and updates of `count` heads weigh keys and values by, from their rows: the inverses of both side by side.
__device__ __forceinline__ void solve_heads(ChunkPair& pair, int count, int real, bool first, bool read, bool moves, int warp,
                                            int lane) {
  if (first) {
    ChunkMemory memory(pair, 0);
    clear_broken(memory, 1, warp, lane);
  }
  if (warp / 4 < count) {
    ChunkBlock block(pair, warp / 4);
    couple(block, warp % 4, lane, read);
  }
  __syncthreads();
  if (warp < count) {
    ChunkBlock block(pair, warp);
    invert(block, real, lane);
  }
  __syncthreads();
#pragma unroll 1
  for (int own = 0; own < count; ++own) {
    ChunkBlock block(pair, own);
    weigh(block, threadIdx.x, moves);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, PROGRAMS)
    delta_prepare(const __grid_constant__ TensorMap factors, const __grid_constant__ TensorMap keys, float* bases, float* rates,
                  const half_t* into, half_t* ring, const float* conv, const float* decays, const float* bias,
                  const int64* slots, const int64* lengths, const int64* foldeds, const int64* valids, int stride, int width,
                  int blocks, int ring_rows, int k_heads, int heads, int features, int kept, int skipped, float scale) {
  extern __shared__ unsigned char raw[];
  // The tensor cores' swizzle follows addresses.
  ChunkPair& pair = *reinterpret_cast<ChunkPair*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  const int warp = __shfl_sync(~0u, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
  const int number = skipped + blockIdx.x / k_heads, k_head = blockIdx.x % k_heads, sequence = blockIdx.y;
  const int slot = (int)slots[sequence], length = (int)lengths[sequence], start = (int)foldeds[sequence] + number * BLOCK;
  const int reach = length + (int)valids[sequence], group = heads / k_heads;
  await_previous();
  allow_next();
  if (start >= reach) return;
  const int place = start % ring_rows, real = min(reach - start, BLOCK), at = sequence * blocks + number;
  const bool through = start + BLOCK <= reach, read = start + BLOCK > length;
  DeltaSpan span{
      into + (size_t)sequence * width * features, ring + (size_t)slot * ring_rows * kept, length, ring_rows, features, kept};
  span.take_heads(k_heads, heads, k_head, 0);
  span.keeps_keys = true, span.scale = scale;
  for (int row = real + warp; row < BLOCK; row += WARPS) {
    const float none[4] = {0.f, 0.f, 0.f, 0.f};
    ChunkBlock block(pair, 0);
    clear_row(block, row, lane);
    store_halves(block.values, row, lane * 4, none, 1.f);
    store_halves(pair.own[1].values, row, lane * 4, none, 1.f);
  }
#pragma unroll 1
  for (int before = 0; before < group; before += 2) {
    const int head = k_head * group + before, count = min(group - before, 2), first = before ? 2 : 0;
    span.head = head, span.values = (2 * k_heads + head) * DIM;
    load_tap_weights(pair, span, conv, stride, first, 2 + count, warp, lane);
    if (warp == WARPS - 1) {
      const int own = lane / BLOCK % count;  // where a head is alone both halves of the warp make its rates
      span.gates = kept - 2 * heads + head + own;
      make_rates(ChunkBlock(pair, own), span, decays[head + own], bias[head + own], start, place, real, lane % BLOCK);
    }
    __syncthreads();
    make_all(pair, span, start, place, real, first, 2 + count - first, warp, lane);
    __syncthreads();
    solve_heads(pair, count, real, before == 0, read, through, warp, lane);
#pragma unroll 1
    for (int own = 0; own < count; ++own) {
      // TMA may still read what the last head left.
      if (warp == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      __syncthreads();
      ChunkBlock block(pair, own);
      if (read) factor<true>(block, warp, lane);
      if (through) factor<false>(block, warp, lane);
      publish();
      __syncthreads();
      const int line = at * heads + head + own;
      if (warp == 0)
        store_block(block, &factors, &keys, bases, line, at * k_heads + k_head, before + own == 0 && through, lane);
      if (warp == 1 && lane <= BLOCK) rates[line * LINES + lane] = lane < BLOCK ? block.until[lane] : block.since[BLOCK - 1];
    }
    __syncthreads();
  }
  if (warp == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
