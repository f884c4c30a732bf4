// The warps that prepare: all that no state enters, of one block of two heads after the other. They are up to a block ahead
// of the warps with states.

// A warp's share of what rows are convolved with: asked for first, stored when other things have been done.
struct Taps {
  static constexpr int EACH = TAPS * (2 + TOGETHER_HEADS) / WARPS;
  float4 fours[EACH];

  __device__ __forceinline__ Taps(const Span& span, const float* conv, int stride, int parts, int warp, int lane) {
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
      const int number = warp + each * WARPS, tap = number / parts, part = number % parts;
      if (tap < TAPS) fours[each] = *reinterpret_cast<const float4*>(conv + tap * stride + span.channel(part) + lane * 4);
    }
  }
  __device__ __forceinline__ void store(Pair& pair, int parts, int warp, int lane) const {
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
      const int number = warp + each * WARPS, tap = number / parts, part = number % parts;
      if (tap < TAPS) *reinterpret_cast<float4*>(&pair.conv[tap][part][lane * 4]) = fours[each];
    }
  }
};

// Rows that are absent weigh nothing, but must be numbers: once at the beginning all are zero.
__device__ __forceinline__ void clear(Pair& pair, int warp, int lane) {
  const float none[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 1
  for (int number = warp; number < 2 * BLOCK; number += WARPS) {
    const int which = number / BLOCK, row = number % BLOCK;
    Block block(pair, which, which);
    clear_row(block, row, lane);
    store_halves(block.values, row, lane * 4, none, 1.f);
  }
}

// Goes from row to row of what is kept and, behind it, of the span; a lane has four neighbours of a row as projected.
struct Walk {
  const half_t* from;
  int row, ahead, turn;  // `ahead` of the span's beginning, and the place in the ring

  __device__ __forceinline__ Walk(const Span& span, int start, int place, int row, int column)
      : row(row), ahead(start + row - span.length), turn(span.turned(place + row)) {
    from = (ahead >= 0 ? span.into + ahead * span.features : span.ring + turn * span.kept) + column;
  }
  // The next row, or zeros where none is.
  __device__ __forceinline__ uint2 next(const Span& span, int start, int end, int column) {
    const bool there = start + row >= 0 && row < end;
    const uint2 four = there ? *reinterpret_cast<const uint2*>(from) : make_uint2(0, 0);
    const bool over = turn + 1 == span.ring_rows;
    from += ahead >= 0 ? span.features : over ? (1 - span.ring_rows) * span.kept : span.kept;
    turn = over ? 0 : turn + 1, ++row, ++ahead;
    if (ahead == 0) from = span.into + column;
    return four;
  }
};

// What a warp makes of a block: queries, keys or values of one half of its rows, two neighbours at a time. The first rows,
// and the four behind them, are asked for while the block before is handed over.
struct Run {
  int start, place, real, from, until;
  Walk walk;
  Raw<2> raw;
  uint2 ahead[4];
  half_t logit = 0, slope = 0;  // of the last warp: what the model says of rates, of one head in each half of it

  __device__ __forceinline__ Run(const Span& span, int start, int reach, int place, int part, bool any, int own_gate, int warp,
                                 int lane)
      : start(start), place(place), real(min(reach - start, BLOCK)), from(warp < 4 ? 0 : (real + 3) / 4 * 2),
        until(!any ? 0 : warp < 4 ? min((real + 3) / 4 * 2, real) : real),
        walk(span, start, place, from + 1 - TAPS, span.channel(part) + lane * 4) {
    const int column = span.channel(part) + lane * 4, row = lane % BLOCK;
#pragma unroll
    for (int each = 0; each < TAPS + 1; ++each) raw.rows[each] = ahead[each % 4] = make_uint2(0, 0);
    if (from < until) {
#pragma unroll
      for (int each = 0; each < TAPS + 1; ++each) raw.rows[each] = walk.next(span, start, real, column);
#pragma unroll
      for (int each = 0; each < 4; ++each) ahead[each] = walk.next(span, start, real, column);
    }
    if (warp == WARPS - 1 && row < real) {
      const half_t* gate = span.row(start + row, place + row) + span.gates + own_gate;
      logit = gate[0], slope = gate[span.gates_apart];
    }
  }

  __device__ __forceinline__ void make(Pair& pair, const Span& span, int part, int turn, int lane) {
    const int column = span.channel(part) + lane * 4;
    const bool keeps = part >= 2 || span.keeps_keys;
    Memory memory(pair, part < 2 ? 0 : part - 2, turn);
#pragma unroll 1
    for (int row = from; row < until; row += 2) {
      asm volatile("" : "+r"(lane));
#pragma unroll
      for (int each = 0; each < 2; ++each)
        if (keeps && row + each < until && start + row + each >= span.length)
          *reinterpret_cast<uint2*>(span.kept_row(place + row + each) + column) = raw.rows[TAPS - 1 + each];
      make_part<2>(memory, span, raw, row, until, min(part, 2), lane);
#pragma unroll
      for (int each = 0; each < TAPS - 1; ++each) raw.rows[each] = raw.rows[each + 2];
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        raw.rows[TAPS - 1 + each] = ahead[each], ahead[each] = ahead[2 + each];
        ahead[2 + each] = walk.next(span, start, real, column);
      }
    }
  }

  // The last warp: rates and decays; those of a row of the span are kept in the ring, too.
  __device__ __forceinline__ void set_rates(Pair& pair, const Span& span, float decay, float bias, int own_gate, int turn,
                                            int lane) const {
    const int row = lane % BLOCK;
    if (row < real && start + row >= span.length) {
      half_t* kept = span.kept_row(place + row) + span.gates + own_gate;
      kept[0] = logit, kept[span.gates_apart] = slope;
    }
    Block block(pair, own_gate, turn);
    set_rate(block, logit, slope, row < real, decay, bias, row);
  }
};

// Rows of which a query or a key is no number count as absent.
__device__ __forceinline__ void clear_ill(Pair& pair, int turn, int warp, int lane) {
  Block block(pair, 0, turn);
  const unsigned broken = __ballot_sync(~0u, block.ill[0][lane % BLOCK] + block.ill[1][lane % BLOCK] != 0.f);
  if (!broken) return;
  for (int row = warp; row < BLOCK; row += WARPS)
    if (broken >> row & 1) clear_row(block, row, lane);
  meet(OF_ROWS);
}

// What reads and updates weigh keys and values by, of both heads side by side.
__device__ __forceinline__ void solve(Pair& pair, int count, int real, bool read, bool moves, int turn, int warp, int lane) {
  if (warp / 4 < count) {
    Block block(pair, warp / 4, turn);
    couple(block, warp % 4, lane, read);
  }
  meet(OF_ROWS);
  if (real > 2) {
    if (warp < count) {
      Block block(pair, warp, turn);
      invert(block, real, lane);
    }
    meet(OF_ROWS);
  }
  // Lines of rows that are absent are not read. A warp has two lines of a head.
  const int last = count * (moves ? BLOCK / 2 : (real + 1) / 2);
#pragma unroll 1
  for (int unit = warp; unit < last; unit += WARPS) {
    Block block(pair, unit % count, turn);
    weigh(block, unit / count * WARP + lane, moves);
  }
  meet(OF_ROWS);
}

// Factors and bases of a head, handed over to the warps with states when those have left what lay there.
__device__ __forceinline__ void hand_over(Pair& pair, int own, bool read, bool moves, int turn, int warp, int lane) {
  if (turn > 0) await_phase(shared_address(&pair.empty[own]), (turn - 1) & 1);
  Block block(pair, own, turn);
  if (read) factor<true>(block, warp, lane);
  if (moves) {
    factor<false>(block, warp, lane);
    Ready& ready = pair.ready[own];
    if (warp == 0 && lane < BLOCK) ready.since[lane] = block.since[lane], ready.until[lane] = block.until[lane];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (lane == 0) arrive(shared_address(&pair.full[own]));
}

__device__ __forceinline__ void prepare(Pair& pair, const Round& round, const float* conv, const float* decays,
                                        const float* bias, int stride, int warp, int lane) {
  int sequence = blockIdx.y;
  Item item(round, sequence);
  const int part = warp % 4, own_gate = lane / BLOCK % round.count;
  const bool any = part < 2 + round.count;
  int start = item.folded;
  const Span first = span_of(round, item, sequence);
  const Taps taps(first, conv, stride, 2 + round.count, warp, lane);
  clear(pair, warp, lane);
  taps.store(pair, 2 + round.count, warp, lane);
  await_previous();
  asm volatile("" : "+r"(lane));
  Run run(first, start, item.length + round.width, start % round.ring_rows, part, any, own_gate, warp, lane);
  meet(OF_ROWS);
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    asm volatile("" : "+r"(lane));  // what follows from it is computed again, not kept
    Span span = span_of(round, item, sequence);
    const int reach = item.length + round.width;
    const bool read = start + BLOCK > item.length, moves = start + BLOCK < reach;
    const Item next(round, min(sequence + (int)gridDim.y, round.batch - 1));
    const float decay = decays[round.head + own_gate], by = bias[round.head + own_gate];
    run.make(pair, span, part, turn, lane);
    if (warp == WARPS - 1) run.set_rates(pair, span, decay, by, own_gate, turn, lane);
    if (!moves) {
      start = next.folded, item = next, sequence += gridDim.y;
      span = span_of(round, item, min(sequence, round.batch - 1));
    } else
      start += BLOCK;
    meet(OF_ROWS);
    clear_ill(pair, turn, warp, lane);
    solve(pair, round.count, run.real, read, moves, turn, warp, lane);
    const bool more = sequence < round.batch;
    hand_over(pair, 0, read, moves, turn, warp, lane);
    // Rows are asked for between the two heads, as the fence before the first would wait for them. Where no block is left
    // there are none; what a run is made of is always set, so that nothing of the last one is kept.
    run = Run(span, start, more ? item.length + round.width : start, start % round.ring_rows, part, any, own_gate, warp, lane);
    if (round.count > 1) hand_over(pair, 1, read, moves, turn, warp, lane);
    if (!more) break;
    meet(OF_ROWS);
  }
}
