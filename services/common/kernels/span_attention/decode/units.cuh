// Tiles of keys and of values in shared memory, in turn. The warp that reads one asks for the next that takes its place: no one
// else waits for it.

#pragma once

#include "build.cuh"
#include "barrier.cuh"
#include "tma.cuh"
#include "span_attention/alone/rows.cuh"
#include "span_attention/decode/instructions.cuh"
#include "span_attention/decode/sizes.cuh"

// Four neighbours of a head.
__device__ __forceinline__ uint2 four_of(const unsigned short (&head)[ROW], int lane) {
  return *reinterpret_cast<const uint2*>(head + lane * 4);
}

// Where a tile lies. Of a line, eights of numbers lie in an order of its own: number `n` where `n ^ line % 8` would.
struct Unit {
  unsigned begin;

  // Of 16 positions, 16 numbers of keys from an eight on: positions are rows of the left operand.
  __device__ __forceinline__ void keys(unsigned (&pairs)[4], int position, int eight, int lane) const {
    const unsigned at = begin + lane % 16 * LINE_BYTES + ((lane / 16 ^ lane % 8) << 4);
    load_matrices(pairs, (at ^ eight % 8 << 4) + eight / 8 * PANEL_BYTES + position * LINE_BYTES);
  }
  // Of 16 positions, 16 columns of values from an eight on: columns are rows.
  __device__ __forceinline__ void values(unsigned (&pairs)[4], int position, int eight, int lane) const {
    const unsigned at = begin + (lane / 16 * 8 + lane % 8) * LINE_BYTES + ((lane / 8 % 2 ^ lane % 8) << 4);
    load_turned(pairs, (at ^ eight % 8 << 4) + eight / 8 * PANEL_BYTES + position * LINE_BYTES);
  }
  // Puts in a line, four numbers a lane.
  __device__ __forceinline__ void put(int line, uint2 numbers, int lane) const {
    const int eight = lane / 2;
    const unsigned at = begin + eight / 8 * PANEL_BYTES + line * LINE_BYTES + ((eight % 8 ^ line % 8) << 4) + lane % 2 * 8;
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(numbers.x), "r"(numbers.y) : "memory");
  }
};

// The units of a row: tile after tile, keys before values.
struct Units {
  const TensorMap* map;
  const int* table;
  unsigned begin, barriers;
  int column, places, last, lane;

  __device__ __forceinline__ int position(int tile) const {
    // Past the last position its block is read again: others may not be there.
    return min(tile * TOKENS + lane / PANELS % PIECES * PIECE, last);
  }
  __device__ __forceinline__ int block_of(int tile) const { return __ldcg(table + position(tile) / BLOCK); }
  __device__ __forceinline__ Unit unit(int index) const { return {begin + index % UNITS * UNIT_BYTES}; }

  __device__ __forceinline__ void ask(int index, int block) const {
    const unsigned barrier = barriers + index % UNITS * 8;
    if (lane == 0) expect_bytes(barrier, UNIT_BYTES);
    __syncwarp();
    if (lane >= BOXES) return;
    const int panel = lane % PANELS, piece = lane / PANELS;
    const int line = index % 2 * places + block * BLOCK + position(index / 2) % BLOCK / PIECE * PIECE;
    load<false>(unit(index).begin + panel * PANEL_BYTES + piece * PIECE * LINE_BYTES, map, column + panel * PANEL, line,
                barrier, 0, USED);
  }
  __device__ __forceinline__ Unit await(int index) const {
    await_phase(barriers + index % UNITS * 8, index / UNITS % 2);
    return unit(index);
  }
};
