// What a CTA works on: two heads that share queries and keys, of one sequence after the other.

enum : int { OF_STATES = 1, OF_ROWS = 2 };

// A barrier of the warps that prepare, or of those with states.
__device__ __forceinline__ void meet(int which) {
  asm volatile("bar.sync %0, %1;" ::"r"(which), "n"(EACH_THREADS) : "memory");
}

// What a round is given; a CTA has `count` heads from `head` on, of sequences whose numbers lie apart by the grid.
struct Round {
  const half_t* into;
  half_t* ring;
  const int64 *slots, *lengths, *foldeds;
  int width, ring_rows, k_heads, heads, features, kept, batch, k_head, head, count;
  bool keeps_keys;
  float scale;
};

struct Item {
  int slot, length, folded;
  __device__ Item(const Round& round, int sequence)
      : slot((int)round.slots[sequence]), length((int)round.lengths[sequence]), folded((int)round.foldeds[sequence]) {}
};

__device__ __forceinline__ Span span_of(const Round& round, const Item& item, int sequence) {
  return {round.into + (size_t)sequence * round.width * round.features,
          round.ring + (size_t)item.slot * round.ring_rows * round.kept,
          item.length,
          round.ring_rows,
          round.features,
          round.kept,
          round.k_head * DIM,
          (round.k_heads + round.k_head) * DIM,
          (2 * round.k_heads + round.head) * DIM,
          round.kept - 2 * round.heads + round.head,
          round.heads,
          round.head,
          round.keeps_keys,
          round.scale};
}
