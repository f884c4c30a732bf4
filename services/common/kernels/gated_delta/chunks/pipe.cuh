// What a block brings to shared memory, and the ring of stages that it comes through.
//
// `build.cuh` defines STAGES, PROGRAMS (CTAs that share a processor), and multiply_32 and multiply_128, wgmmas of 64
// rows.

#pragma once

#include "build.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "gated_delta/rounds/arithmetic.cuh"

constexpr int COLUMNS = 64, LINES = 32, PANEL = 64, PANEL_BYTES = 128, STEPS = DIM / 16;
constexpr int CHAIN_WARPS = 4, CHAIN_THREADS = CHAIN_WARPS * WARP;

// Panels of 64 numbers (32 of the base), swizzled over 128 bytes.
struct alignas(1024) Stage {
  unsigned char factors[2][2 * LINES * PANEL_BYTES];  // upper halves of all lines, then what is left
  unsigned char keys[2][2 * BLOCK * PANEL_BYTES];
  unsigned char base[2][LINES * PANEL_BYTES];
  float rates[LINES];
};
constexpr unsigned STAGE_BYTES =
    2 * 2 * LINES * PANEL_BYTES + 2 * 2 * BLOCK * PANEL_BYTES + 2 * LINES * PANEL_BYTES + LINES * 4;

struct Pipe {
  Stage stages[STAGES];
  unsigned long long full[STAGES], empty[STAGES];
};

__device__ __forceinline__ void load_box(unsigned to, const TensorMap* map, int column, int row, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void load_bytes(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

// Lines of the factors lie as `descriptor` says; keys have their columns side by side, panels of them apart.
__device__ __forceinline__ unsigned long long columns_at(unsigned address) {
  return turned_descriptor(address, sizeof(Stage::keys[0]));
}
