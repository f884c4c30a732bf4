// How tensor cores find what lies in shared memory, and what goes between it and registers.

#pragma once

#include "warp.cuh"
#include "wgmma.cuh"
#include "gated_delta/rounds/arithmetic.cuh"

constexpr int PANEL = 64, PANEL_BYTES = 128;     // numbers of a swizzled row
constexpr int ROWS_BYTES = BLOCK * PANEL_BYTES;  // of 16 rows, half of them wide
constexpr int LINES = 32, LINES_BYTES = LINES * PANEL_BYTES;
constexpr int PITCH = DIM + 4, SMALL_PITCH = 20, HALF_PITCH = 24;  // so that a warp's accesses meet no bank twice

// Where eight numbers lie in a tile whose panels of 64 columns are swizzled over 128 bytes.
__device__ __forceinline__ unsigned eight_at(int panel_bytes, int row, int column) {
  return column / PANEL * panel_bytes + row * PANEL_BYTES + ((column % PANEL / 8 ^ row % 8) << 4);
}

// Lines of the factors lie as `descriptor` says; keys have their columns side by side, panels of them apart.
__device__ __forceinline__ unsigned long long columns_at(unsigned address) { return turned_descriptor(address, ROWS_BYTES); }

__device__ __forceinline__ void multiply_halves(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Brings a head's state into L2.
__device__ __forceinline__ void prefetch(const float* state) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(state), "r"(DIM * DIM * 4) : "memory");
}
