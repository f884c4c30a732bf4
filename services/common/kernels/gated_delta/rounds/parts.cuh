// How warps share the parts of a block's rows among them: queries, keys and values.

#pragma once

#include "gated_delta/rounds/arithmetic.cuh"
#include "gated_delta/rounds/rows.cuh"

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
