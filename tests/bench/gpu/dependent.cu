// A chain of products that each add to the sums of the one before, as one sum in order of depth needs them: what a step costs.
//
// `build.cuh` defines SUMS (of a thread), WARPS, BITS of codes that are widened beside (0: none) and SYNC: `mma.sync` multiplies.
// `step.cuh` has step(sums, lines, rows, shared memory, place of four).

#include "build.cuh"
#include "barrier.cuh"
#include "wgmma.cuh"
#include "linear/packed/e4m3.cuh"
#include "linear/packed/int4.cuh"
#include "step.cuh"

constexpr int AT_ONCE = 4, BOX_BYTES = 8192, BYTES = 4 * BOX_BYTES;

template <int>
struct Codes {
  using Of = E4m3;
};

template <>
struct Codes<4> {
  using Of = Int4;
};

struct Operands {
  unsigned lines[2][AT_ONCE][4], rows[4], codes[AT_ONCE];
  Codes<BITS>::Of scale;

  __device__ __forceinline__ void begin(const unsigned* source) {
    for (int at = 0; at < AT_ONCE * 8; ++at) lines[at / 16][at / 4 % 4][at % 4] = source[at * 32];
    for (int at = 0; at < 4; ++at) rows[at] = source[at * 32], codes[at] = source[at * 32 + 1];
    scale.open(source[0]);
  }

  // Widens what the next four products take, from codes in shared memory.
  __device__ __forceinline__ void widen(int half, unsigned from) {
    constexpr int A_WORD = BITS == 4 ? 2 : 1;
#pragma unroll
    for (int at = 0; at < AT_ONCE; ++at) {
      unsigned wide[2];
      scale.widen(codes[at / A_WORD], at % A_WORD, wide);
      lines[half][at][0] = wide[0], lines[half][at][2] = wide[1];
      asm volatile("" : "+r"(lines[half][at][0]), "+r"(lines[half][at][2])::"memory");
    }
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(codes[0]), "=r"(codes[1]), "=r"(codes[2]), "=r"(codes[3])
                 : "r"(from)
                 : "memory");
  }
};

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    product(long long* cycles, float* out, const unsigned* source, int steps) {
  extern __shared__ unsigned char memory[];
  const unsigned base = (shared_address(memory) + 1023) & ~1023u;
  for (int at = threadIdx.x * 4; at < BYTES; at += WARPS * 128)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + at), "r"(source[at / 4]) : "memory");
  float sums[SUMS] = {};
  Operands has;
  has.begin(source + threadIdx.x % 32);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  hold(sums);
  const long long begin = clock64();
  for (int done = 0; done < steps; done += 2 * AT_ONCE) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (!SYNC) begin_products();
#pragma unroll
      for (int at = 0; at < AT_ONCE; ++at) step(sums, has.lines[half][at], has.rows, base, at);
      if constexpr (!SYNC) end_products();
      if constexpr (!SYNC) await_products<1>();
      if constexpr (BITS > 0) has.widen(1 - half, base + threadIdx.x % 128 * 16 + done * 16 % BOX_BYTES);
    }
  }
  if constexpr (!SYNC) await_products<0>();
  hold(sums);
  const long long took = clock64() - begin;
  float total = 0.f;
  for (int at = 0; at < SUMS; ++at) total += sums[at];
  out[blockIdx.x * WARPS * 32 + threadIdx.x] = total;
  if (blockIdx.x == 0 && threadIdx.x % 32 == 0) cycles[threadIdx.x / 32] = took;
}
