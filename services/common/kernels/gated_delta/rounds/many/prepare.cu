// The warps that prepare: all that no state enters, of one block of two heads after the other. They are a block or two
// ahead of the warps with states.

__device__ __forceinline__ void load_taps(Pair& pair, const Span& span, const float* conv, int stride, int parts, int warp,
                                          int lane) {
#pragma unroll 1
  for (int each = warp; each < TAPS * parts; each += WARPS) {
    const float* from = conv + each / parts * stride + span.channel(each % parts) + lane * 4;
    *reinterpret_cast<float4*>(&pair.conv[each / parts][each % parts][lane * 4]) = *reinterpret_cast<const float4*>(from);
  }
}

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

// Four neighbours of a row as projected, or zeros where none is.
__device__ __forceinline__ uint2 load_row(const Span& span, int start, int place, int row, int real, int column) {
  const bool there = start + row >= 0 && row < real;
  return there ? *reinterpret_cast<const uint2*>(span.row(start + row, place + row) + column) : make_uint2(0, 0);
}

// A warp makes queries, keys or values of one half of a block's rows, two neighbours at a time: rows before them are at
// hand, and the next four have been asked for.
__device__ __forceinline__ void make_run(Pair& pair, const Span& span, int start, int place, int real, int count, int turn,
                                         int warp, int lane) {
  const int part = warp % 4, own = part < 2 ? 0 : part - 2, middle = (real + 3) / 4 * 2;
  const int from = warp < 4 ? 0 : middle, until = warp < 4 ? min(middle, real) : real, column = span.channel(part) + lane * 4;
  if (part >= 2 + count || from >= until) return;
  const bool keeps = part >= 2 || span.keeps_keys;
  Memory memory(pair, own, turn);
  Raw<2> raw;
  uint2 ahead[4];
#pragma unroll
  for (int each = 0; each < TAPS + 1; ++each) raw.rows[each] = load_row(span, start, place, from + each + 1 - TAPS, real, column);
#pragma unroll
  for (int each = 0; each < 4; ++each) ahead[each] = load_row(span, start, place, from + 2 + each, real, column);
#pragma unroll 1
  for (int row = from; row < until; row += 2) {
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
      ahead[2 + each] = load_row(span, start, place, row + 6 + each, real, column);
    }
  }
}

// What the model says of a row's rate and of its decay, of one head in each half of a warp.
struct Gate {
  half_t logit = 0, slope = 0;
  __device__ Gate(const Span& span, int start, int place, int real, int own, int row) {
    if (row >= real) return;
    const half_t* gate = span.row(start + row, place + row) + span.gates + own;
    logit = gate[0], slope = gate[span.gates_apart];
  }
  __device__ void keep(const Span& span, int place, int own, int row) const {
    half_t* kept = span.kept_row(place + row) + span.gates + own;
    kept[0] = logit, kept[span.gates_apart] = slope;
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
  // Lines of rows that are absent are not read.
  if (moves || warp * 2 < real) {
#pragma unroll 1
    for (int own = 0; own < count; ++own) {
      Block block(pair, own, turn);
      weigh(block, warp * WARP + lane, moves);
    }
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
    if (warp == 0 && lane < BLOCK) pair.ready[own].since[lane] = block.since[lane], pair.ready[own].until[lane] = block.until[lane];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (lane == 0) arrive(shared_address(&pair.full[own]));
}

__device__ __forceinline__ void prepare(Pair& pair, const Round& round, const float* conv, const float* decays,
                                        const float* bias, int stride, int warp, int lane) {
  int sequence = blockIdx.y, turn = 0;
  Item item(round, sequence);
  const int row = lane % BLOCK, own_gate = lane / BLOCK % round.count;
  load_taps(pair, span_of(round, item, sequence), conv, stride, 2 + round.count, warp, lane);
  clear(pair, warp, lane);
  const float decay = decays[round.head + own_gate], by = bias[round.head + own_gate];
  meet(OF_ROWS);
  await_previous();
#pragma unroll 1
  for (; sequence < round.batch; sequence += gridDim.y) {
    const Span span = span_of(round, item, sequence);
    const Item next(round, min(sequence + (int)gridDim.y, round.batch - 1));
    const int reach = item.length + round.width;
#pragma unroll 1
    for (int start = item.folded; start < reach; start += BLOCK, ++turn) {
      const int real = min(reach - start, BLOCK), place = start % round.ring_rows;
      const bool gates = warp == WARPS - 1, read = start + BLOCK > item.length, moves = start + BLOCK < reach;
      const Gate gate(span, start, place, gates ? real : 0, own_gate, row);
      make_run(pair, span, start, place, real, round.count, turn, warp, lane);
      if (gates) {
        if (row < real && start + row >= item.length) gate.keep(span, place, own_gate, row);
        Block block(pair, own_gate, turn);
        set_rate(block, gate.logit, gate.slope, row < real, decay, by, row);
      }
      meet(OF_ROWS);
      clear_ill(pair, turn, warp, lane);
      solve(pair, round.count, real, read, moves, turn, warp, lane);
#pragma unroll 1
      for (int own = 0; own < round.count; ++own) hand_over(pair, own, read, moves, turn, warp, lane);
      meet(OF_ROWS);
    }
    item = next;
  }
}
