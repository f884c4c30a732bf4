// Which tiles a CTA takes, as `splits.py` says, and where its rows lie.

#pragma once

#include "build.cuh"
#include "span_attention/hopper/sizes.cuh"
#include "span_attention/hopper/splits.cuh"

struct Span {
  int length, total, width, first_row;
  const long long* positions;  // of the nodes of a TREE

  __device__ __forceinline__ int last_seen(int row) const {
    if constexpr (TREE) return min((int)positions[min(row / GROUP, width - 1)], total - 1);
    return HAS_BLOCK ? total - 1 : min(length + row / GROUP, total - 1);
  }
  __device__ __forceinline__ int split(int row) const { return tiles_of_split(last_seen(row)); }
  __device__ __forceinline__ int rows() const { return width * GROUP; }
  __device__ __forceinline__ int last_row() const { return min(first_row + ROWS, rows()) - 1; }
  // Positions that some row sees, those that all rows from one on see, and those that lie in paged memory.
  __device__ __forceinline__ int seen() const { return HAS_BLOCK ? total : min(total, length + last_row() / GROUP + 1); }
  __device__ __forceinline__ int seen_from(int row) const { return HAS_BLOCK ? total : length + row / GROUP + 1; }
  __device__ __forceinline__ int paged() const { return HAS_BLOCK ? length : seen(); }

  // Splits of `size` tiles that programs before this one take.
  __device__ __forceinline__ int share(int program, int programs, int size) const {
    const int count = min((total - 1) / TOKENS / size + 1, SPLITS);
    return (program * count + programs - 1) / programs;
  }
};

// The tiles of a CTA that belong to splits of one size.
struct SplitTiles {
  int begin, end;

  __device__ __forceinline__ SplitTiles(const Span& span, int program, int programs, int size) {
    const int behind = ALONE ? SPLITS : span.share(program + 1, programs, size);
    begin = ALONE ? 0 : span.share(program, programs, size) * size;
    end = min(behind * size, (span.seen() + TOKENS - 1) / TOKENS);
  }
};

// So many stages, each with keys and values.
template <int COUNT, int BYTES>
struct Ring {
  unsigned tiles, full, empty;
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ unsigned keys() const { return tiles + stage * BYTES; }
  __device__ __forceinline__ unsigned values() const { return keys() + TILE_BYTES; }
  __device__ __forceinline__ unsigned full_at() const { return full + stage * 8; }
  __device__ __forceinline__ unsigned empty_at() const { return empty + stage * 8; }
  __device__ __forceinline__ void next() {
    if (++stage == COUNT) stage = 0, parity ^= 1;
  }
  // Of the first item, whose tiles come first.
  __device__ __forceinline__ void go_to(int tile) { stage = tile % COUNT, parity = tile / COUNT % 2; }
};

using KvRing = Ring<STAGES, STAGE>;
using LoadRing = Ring<CODES ? CODE_STAGES : STAGES, CODES ? 2 * CODE_TILE : STAGE>;  // what the copy engine fills

// Rows of one K/V head of a sequence, and the splits of theirs that one program takes.
struct Item {
  int sequence, head, program;
  Span span;

  __device__ __forceinline__ int least() const { return span.split(span.first_row); }
  // No node lies deeper than the last row of a chain.
  __device__ __forceinline__ int most() const { return TREE ? tiles_of_split(span.seen() - 1) : span.split(span.last_row()); }
};

// What is read to know an item: asked for early, its lengths are at hand when the item begins.
struct Lead {
  int sequence, head, program, first_row;
  long long length, reach;
};

// What a sequence has no room for is not read.
__device__ __forceinline__ Item item_of(const Lead& lead, int room, int width, const long long* positions = nullptr) {
  const int reach = min((int)lead.reach, room + width);
  return {lead.sequence, lead.head, lead.program,
          Span{min((int)lead.length, room), HAS_BLOCK ? reach : min(reach, room), width, lead.first_row, positions}};
}

// All items, of which a CTA, or each of its warpgroups, takes one after another: in every other round from the other end, so
// that those who began with long ones go on with short ones. A line is as many rows of a sequence, of all heads.
struct Items {
  const long long *lengths, *reaches;
  const int2* ranks;            // sequences with their lengths, the longest first, where they are RANKED
  const unsigned short* order;  // of lines, if they are sorted here
  int sequences, room, width, programs, worker, workers;

  // Which one a worker takes in a round; at least `count` where it has none.
  __device__ __forceinline__ int index(int round) const {
    return round * workers + (round % 2 ? workers - 1 - worker : worker);
  }

  __device__ __forceinline__ int tiles() const { return (width * GROUP + ROWS - 1) / ROWS; }
  __device__ __forceinline__ int lines() const { return sequences * programs * tiles(); }
  __device__ __forceinline__ int count() const { return lines() * KV_HEADS; }

  // Later rows see more, and come first.
  __device__ __forceinline__ Lead lead_of(int line, int head) const {
    const int sequence = line % sequences, rest = line / sequences;
    const int first_row = (tiles() - 1 - rest / programs) * ROWS;
    return {sequence, head, rest % programs, first_row, lengths[sequence], reaches[sequence]};
  }
  __device__ __forceinline__ Lead lead(int index) const {
    const int line = index / KV_HEADS;
    if constexpr (RANKED) {
      const int2 rank = ranks[line];
      return {rank.x, index % KV_HEADS, 0, 0, rank.y, rank.y + width};
    }
    return lead_of(order ? order[line] : line, index % KV_HEADS);
  }
  __device__ __forceinline__ Item item(const Lead& lead) const { return item_of(lead, room, width); }
};

// Lines in the order of what they see, the longest first: workers that take several items have about equal shares then.
struct Order {
  int keys[SORTED];  // no two are alike: those that see as much stay in their order
  unsigned short lines[SORTED];

  // A warp finds the places of some lines: each lane compares with every 32nd of the others.
  __device__ __forceinline__ void sort(const Items& items) {
    const int count = items.lines(), lane = threadIdx.x % 32;
    for (int line = threadIdx.x; line < SORTED; line += blockDim.x)
      keys[line] = line < count ? items.item(items.lead_of(line, 0)).span.seen() * SORTED + SORTED - 1 - line : -1;
    __syncthreads();
    int others[SORTED / 32];
#pragma unroll
    for (int each = 0; each < SORTED / 32; ++each) others[each] = keys[each * 32 + lane];
    for (int line = threadIdx.x / 32; line < count; line += blockDim.x / 32) {
      const int key = keys[line];
      int before = 0;
#pragma unroll
      for (int each = 0; each < SORTED / 32; ++each) before += __popc(__ballot_sync(~0u, others[each] > key));
      if (lane == 0) lines[before] = line;
    }
  }
};
