// A round of few rows: what they read, normed and gated, and states where a block is complete; grid (heads, sequences).
//
// A CTA has a head. Rows since the last boundary, and the state, do not come from the kernel before: all that they need
// is done while that one drains.

#include "build.cuh"
#include "barrier.cuh"
#include "pdl.cuh"
#include "warp.cuh"
#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/block.cuh"
#include "gated_delta/rounds/ends.cuh"
#include "gated_delta/rounds/factors.cuh"
#include "gated_delta/rounds/memory.cuh"
#include "gated_delta/rounds/rows.cuh"
#include "gated_delta/rounds/state.cuh"

// What a CTA keeps in shared memory of the blocks that it prepares together.

// Blocks that are prepared together: of few heads both that drafts may lie in, where memory allows it.
constexpr int TOGETHER = PROGRAMS == 1 ? 2 : 1;
// Neighbouring rows that a warp makes side by side, so that neither's steps wait for one another; registers must allow it.
constexpr int ABREAST = PROGRAMS == 1 ? 2 : 1;

struct alignas(1024) Block {
  unsigned char factors[2][2][LINES_BYTES];  // high and low: lines that multiply a state, K-major
  unsigned char keys[2][2][ROWS_BYTES], queries[2][2][ROWS_BYTES], values[2][2][ROWS_BYTES];
  float base[LINES][PITCH];  // terms that depend on no state; reused for what rows read
  float query[BLOCK][PITCH];
  float lower[BLOCK][SMALL_PITCH], reads[BLOCK][SMALL_PITCH], solved[BLOCK][SMALL_PITCH], half[BLOCK][SMALL_PITCH];
  // What reads and updates weigh keys and values by: halves, and powers of two to be undone.
  half_t weights[2][2][2][BLOCK][HALF_PITCH];
  float back[2][BLOCK];
  int64 units[BLOCK];
  float ill[4][BLOCK], beta[BLOCK], down[BLOCK], since[BLOCK], until[BLOCK];
};

struct Memory {
  Block blocks[TOGETHER];
  float conv[TAPS][3][DIM];
};
static_assert(sizeof(Memory) == MEMORY_BYTES, "as `source.py` counts");

// How warps share the parts of a block's rows among them: queries, keys and values.

template <class Memory>
__device__ __forceinline__ void load_taps(Memory& memory, const DeltaSpan& span, const float* conv, int stride, int warp,
                                          int lane) {
#pragma unroll
  for (int each = warp; each < TAPS * 3; each += WARPS) {
    const float4 four = *reinterpret_cast<const float4*>(conv + each / 3 * stride + span.channel(each % 3) + lane * 4);
    *reinterpret_cast<float4*>(&memory.conv[each / 3][each % 3][lane * 4]) = four;
  }
}

// What comes when rows are asked for, unless a kernel has something to prepare.
struct NoPreparation {
  __device__ __forceinline__ void operator()() const {}
};

// Makes rows from `first` on, `COUNT` at a time; what further ones need is asked for meanwhile. A warp makes every
// `APART`th part of such rows from `unit` on. Fresh ones are kept in the ring, too. `prepare` comes when the first are asked for.
template <bool FRESH, int COUNT, int APART = WARPS, typename Store = Here, typename Prepare = NoPreparation, class Memory>
__device__ __forceinline__ void make_rows(Memory& memory, const DeltaSpan& span, int start, int place, int first, int end,
                                          int unit, int lane, const Store& store = Store(),
                                          const Prepare& prepare = Prepare()) {
  const int last = (end - first + COUNT - 1) / COUNT * 3;
  Raw<COUNT> raw[3];
#pragma unroll
  for (int ahead = 0; ahead < 2; ++ahead) {
    const int own = unit + ahead * APART;
    if (own < last) raw[ahead] = load_raw<COUNT>(span, start, place, first + own / 3 * COUNT, end, own % 3, lane);
  }
  prepare();
#pragma unroll 1
  for (; unit < last; unit += APART) {
    const int row = first + unit / 3 * COUNT, part = unit % 3, after = unit + 2 * APART;
    if (after < last) raw[2] = load_raw<COUNT>(span, start, place, first + after / 3 * COUNT, end, after % 3, lane);
    if (FRESH && (part == 2 || span.keeps_keys)) {
#pragma unroll
      for (int own = 0; own < COUNT; ++own)
        if (row + own < end)
          *reinterpret_cast<uint2*>(span.kept_row(place + row + own) + span.channel(part) + lane * 4) =
              raw[0].rows[TAPS - 1 + own];
    }
    make_part<COUNT>(memory, span, raw[0], row, end, part, lane, store);
    store.count(part, min(COUNT, end - row));
    raw[0] = raw[1], raw[1] = raw[2];
  }
}

// A lane for each row: its rate and its decay; a row of the span is kept in the ring, too.
__device__ __forceinline__ void make_gates(Memory& memory, const DeltaSpan& span, float decay, float bias, int start, int place,
                                           int real, int count, int lane) {
  // Where one block is alone both halves of the warp make it.
  Block& block = memory.blocks[lane / BLOCK % count];
  lane %= count * BLOCK;
  half_t logit = 0, slope = 0;
  if (lane < real) {
    const half_t* gate = span.row(start + lane, place + lane) + span.gates;
    logit = gate[0], slope = gate[span.gates_apart];
    if (start + lane >= span.length) {
      half_t* kept = span.kept_row(place + lane) + span.gates;
      kept[0] = logit, kept[span.gates_apart] = slope;
    }
  }
  set_rate(block, logit, slope, lane < real, decay, bias, lane % BLOCK);
}

extern "C" __global__ void __launch_bounds__(THREADS, PROGRAMS)
    delta_round(const half_t* into, half_t* ring, const float* conv, const float* decays, const float* bias, const half_t* norm,
                const int64* slots, const int64* lengths, const int64* foldeds, float* states, half_t* out, int stride,
                int width, int ring_rows, int k_heads, int heads, int features, int kept, float scale, float eps) {
  extern __shared__ unsigned char raw[];
  // The tensor cores' swizzle follows addresses.
  Memory& memory = *reinterpret_cast<Memory*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
  const int warp = __shfl_sync(~0u, threadIdx.x / WARP, 0);
  int lane = threadIdx.x % WARP;
  allow_next();
  const int head = blockIdx.x, sequence = blockIdx.y;
  const int slot = (int)slots[sequence], length = (int)lengths[sequence], folded = (int)foldeds[sequence];
  const int reach = length + width, fold = length / BLOCK * BLOCK;
  const int group = heads / k_heads, k_head = head / group;
  DeltaSpan span{
      into + (size_t)sequence * width * features, ring + (size_t)slot * ring_rows * kept, length, ring_rows, features, kept};
  span.take_heads(k_heads, heads, k_head, head);
  span.keeps_keys = head % group == 0, span.scale = scale;
  float* own_state = states + ((size_t)slot * heads + head) * (DIM * DIM) + warp * 16;
  bool there = folded > 0, waited = false;
  State state;
  float aside[PROGRAMS > 1 ? DIM / 2 : 1];
  if constexpr (PROGRAMS > 1) asm volatile("" ::"l"(aside) : "memory");
  bool moved = false;
  if constexpr (PROGRAMS > 1) {
    if (threadIdx.x == 0) prefetch(own_state);
    load_taps(memory, span, conv, stride, warp, lane);
  } else {
    float x[DIM / 2];
    load_state<DIM / 2>(own_state, there, x, 0, lane);
    load_taps(memory, span, conv, stride, warp, lane);
    state.take(x);
  }
  __syncthreads();
#pragma unroll 1
  for (int start = folded; start < reach;) {
    asm volatile("" : "+r"(lane));  // what follows from it is computed again, not kept
    // A block whose rows are all old is alone: it does not wait.
    const int count = start + BLOCK > length && start + BLOCK < reach ? TOGETHER : 1, end = start + count * BLOCK;
    const int old = min(max(length - start, 0), count * BLOCK), real = min(reach, end) - start;
    const int place = start % ring_rows;
    make_rows<false, ABREAST>(memory, span, start, place, 0, old, warp, lane);
    for (int row = real + warp; row < count * BLOCK; row += WARPS) {
      Block& block = memory.blocks[row / BLOCK];
      const float none[4] = {0.f, 0.f, 0.f, 0.f};
      clear_row(block, row % BLOCK, lane);
      store_halves(block.values, row % BLOCK, lane * 4, none, 1.f);
    }
    if (end > length && !waited) {
      await_previous();
      waited = true;
    }
    if (warp == WARPS - 1) make_gates(memory, span, decays[head], bias[head], start, place, real, count, lane);
    if (real - old > WARPS)
      make_rows<true, ABREAST>(memory, span, start, place, old, real, warp, lane);
    else
      make_rows<true, 1>(memory, span, start, place, old, real, warp, lane);
    uint2 z[2], weight;
    if constexpr (PROGRAMS == 1) load_ends(span, norm, start, old, real, z, weight, warp, lane);
    __syncthreads();
    clear_broken(memory, count, warp, lane);
    if (warp < count * 4) couple(memory.blocks[warp / 4], warp % 4, lane, start + (warp / 4 + 1) * BLOCK > length);
    __syncthreads();
    if (real > 2) {
      if (warp < count) invert(memory.blocks[warp], real - warp * BLOCK, lane);
      __syncthreads();
    }
#pragma unroll 1
    for (int each = 0; each < count; ++each) weigh(memory.blocks[each], threadIdx.x, start + (each + 1) * BLOCK < reach);
    __syncthreads();
#pragma unroll 1
    for (int each = 0; each < count; ++each) {
      if (start + (each + 1) * BLOCK > length) factor<true>(memory.blocks[each], warp, lane);
      if (start + (each + 1) * BLOCK < reach) factor<false>(memory.blocks[each], warp, lane);
    }
    publish();
    __syncthreads();
#pragma unroll 1
    for (int each = 0; each < count; ++each) {
      Block& block = memory.blocks[each];
      const int next = start + (each + 1) * BLOCK, column = warp * 16 + lane / 4 * 2;
      if constexpr (PROGRAMS > 1) {
        float x[DIM / 2];
        if (moved) {
          asm volatile("" ::"l"(aside) : "memory");
#pragma unroll
          for (int number = 0; number < DIM / 2; ++number) x[number] = aside[number];
        } else
          load_state<DIM / 2>(own_state, there, x, 0, lane);
        state.take(x);
      }
      if (next >= reach) {
        read_last(block, state, column, lane);
        break;
      }
      float before[EARLY + 1];
      if constexpr (EARLY > 0) load_state<EARLY>(own_state, there, before, 0, lane);
      float found[LINES / 2];
      state.times(shared_address(block.factors), found);
      add_bases(block, found, column, lane);
      float x[DIM / 2];
      // What a part of the state was is at hand where registers allow it.
      const auto was = [&](int first, float (&old)[LOADED]) {
        if (first >= EARLY) return load_state<LOADED>(own_state, there, old, first, lane);
#pragma unroll
        for (int each = 0; each < LOADED; ++each) old[each] = before[first < EARLY ? first + each : 0];
      };
      advance(block, found, own_state, next == fold, was, x, lane);
      there |= next == fold;
      if constexpr (PROGRAMS > 1) {
        // Registers are short while a block is prepared.
#pragma unroll
        for (int number = 0; number < DIM / 2; ++number) aside[number] = x[number];
        asm volatile("" ::"l"(aside) : "memory");
        moved = true;
      } else
        state.take(x);
    }
    if constexpr (PROGRAMS > 1) load_ends(span, norm, start, old, real, z, weight, warp, lane);
    __syncthreads();
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int row = old + warp + part * WARPS;
      half_t* to = out + (((size_t)sequence * width + (start + row - length)) * heads + head) * DIM + lane * 4;
      if (row < real) end_row(memory.blocks[row / BLOCK], row % BLOCK, lane, z[part], weight, eps, to);
    }
    start = end;
  }
}
