// Rows as the model projected them, of a block and those before that it is convolved with: copied into shared memory while
// the block before is prepared.

struct Place : Where {
  __device__ __forceinline__ Place(const Where& where) : Where(where) {}
  __device__ __forceinline__ Place(const Round& round, int sequence, const Item& item)
      : Where{rows_of(round, sequence), ring_of(round, item), sequence, item.length, item.folded,
              item.folded % round.ring_rows} {}
  __device__ __forceinline__ Span span(const Round& round) const { return span_of(round, into, ring, length); }
  __device__ __forceinline__ int rows(const Round& round) const { return min(length + round.width - start, BLOCK); }
  // On to the next block of the same sequence.
  __device__ __forceinline__ void advance(const Round& round) {
    start += BLOCK, turn += BLOCK;
    if (turn >= round.ring_rows) turn -= round.ring_rows;
  }
};

// Asks for what lies at `first` up to `last` of a part's rows, the three before the block's first included; a lane has four
// neighbours of each, and finds where one row begins for all. Zeros where no row is.
__device__ __forceinline__ void ask_rows(Pair& pair, const Span& span, const Place& place, int real, int part, int first,
                                         int last, int lane) {
  const int row = lane + 1 - TAPS;
  const bool there = place.start + row >= 0 && row < real;
  const unsigned all = __ballot_sync(~0u, there);
  const half_t* own = there ? span.row(place.start + row, place.turn + row) : span.into;
  const int column = span.channel(part) + lane * 4;
  unsigned to = shared_address(&pair.raw[part][first][lane * 4]);
#pragma unroll 4
  for (int each = first; each < last; ++each, to += DIM * sizeof(half_t)) {
    const unsigned long long from = __shfl_sync(~0u, reinterpret_cast<unsigned long long>(own), each);
    const int bytes = all >> each & 1 ? 8 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from + column * sizeof(half_t)), "r"(bytes)
                 : "memory");
  }
}

__device__ __forceinline__ void await_rows() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What the model says of rates and decays: of one head in each half of a warp, a lane for each row.
struct Gates {
  half_t logit = 0, slope = 0;

  __device__ __forceinline__ void ask(const Span& span, const Place& place, int real, int own, int lane) {
    const int row = lane % BLOCK;
    logit = slope = 0;
    if (row >= real) return;
    const half_t* gate = span.row(place.start + row, place.turn + row) + span.gates + own;
    logit = gate[0], slope = gate[span.gates_apart];
  }
  // Sets them; those of a row of the span are kept in the ring, too.
  __device__ __forceinline__ void set(Block& block, const Span& span, const Place& place, int real, float decay, float bias,
                                      int own, int lane) const {
    const int row = lane % BLOCK;
    if (row < real && place.start + row >= span.length) {
      half_t* kept = span.kept_row(place.turn + row) + span.gates + own;
      kept[0] = logit, kept[span.gates_apart] = slope;
    }
    set_rate(block, logit, slope, row < real, decay, bias, row);
  }
};
