// How a thread ends its lines of a product. It has, of each tile, two lines eight apart, and two neighbours of each eight rows.

__device__ __forceinline__ float rounded(float x) { return low_of(pair_of(x, 0.f)); }
__device__ __forceinline__ unsigned short bits_of(float x) { return (unsigned short)pair_of(x, 0.f); }
__device__ __forceinline__ float number(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

// The row of the `own`-th of a thread's rows, and the place of its sum for the first of the thread's two lines.
__device__ __forceinline__ int row_at(int own, int lane) { return own / 2 * 8 + lane % 4 * 2 + own % 2; }
__device__ __forceinline__ int sum_at(int own) { return own / 2 * 4 + own % 2; }

// What a thread's rows wait for, asked for before the products.
struct Roots {
  float of[OWN];

  __device__ __forceinline__ void read(const Ends& ends, int lane) {
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const int row = row_at(own, lane);
      const bool waits = ends.squares && row < ends.rows;
      of[own] = waits ? root_scale(ends.squares[row], ends.inverse_depth, ends.eps) : 1.f;
    }
  }
};

__device__ __forceinline__ void end_gated(const float (&sums)[TILES][SUMS], const Ends& ends, const Roots& roots, int first,
                                          int lane, int warp) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    const int eight = tile * WARPS + warp, line = first + eight * 8 + lane / 4;
    if (eight >= EIGHTS / 2 || line >= ends.outputs) continue;
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const int row = row_at(own, lane);
      const float gate = __fmul_rn(rounded(sums[tile][sum_at(own)]), roots.of[own]);
      const float up = __fmul_rn(rounded(sums[tile][sum_at(own) + 2]), roots.of[own]);
      if (row < ends.rows) ends.out[(size_t)row * ends.outputs + line] = bits_of(gated(gate, up));
    }
  }
}

// The stream, or what is gated, at a thread's sums; for a stream the norm at its lines too.
struct Beside {
  unsigned short stream[TILES * 2][OWN], norm[TILES * 2];

  __device__ __forceinline__ void read(const Ends& ends, int first, int lane, int warp) {
#pragma unroll
    for (int part = 0; part < TILES * 2; ++part) {
      const int in_band = part / 2 * 64 + warp * 16 + part % 2 * 8 + lane / 4, line = first + in_band;
      const bool inside = in_band < LINES && line < ends.outputs;
      norm[part] = KIND == ADDED && inside ? ends.norm[line] : 0;
#pragma unroll
      for (int own = 0; own < OWN; ++own) {
        const int row = row_at(own, lane);
        stream[part][own] = inside && row < ends.rows ? ends.stream[(size_t)row * ends.outputs + line] : 0;
      }
    }
  }
};

// Stores a product of a norm, or what it gates.
__device__ __forceinline__ void end_normed(const float (&sums)[TILES][SUMS], const Ends& ends, const Roots& roots,
                                           const Beside& beside, int first, int lane, int warp) {
#pragma unroll
  for (int part = 0; part < TILES * 2; ++part) {
    const int in_band = part / 2 * 64 + warp * 16 + part % 2 * 8 + lane / 4, line = first + in_band;
    if (in_band >= LINES || line >= ends.outputs) continue;
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const int row = row_at(own, lane);
      float result = __fmul_rn(rounded(sums[part / 2][sum_at(own) + part % 2 * 2]), roots.of[own]);
      if constexpr (KIND == GATES) result = times_sigmoid(number(beside.stream[part][own]), result);
      if (row < ends.rows) ends.out[(size_t)row * ends.outputs + line] = bits_of(result);
    }
  }
}

__device__ __forceinline__ void end_added(const float (&sums)[TILES][SUMS], const Ends& ends, const Beside& beside, int first,
                                          int lane, int warp) {
  long long totals[OWN] = {};
#pragma unroll
  for (int part = 0; part < TILES * 2; ++part) {
    const int in_band = part / 2 * 64 + warp * 16 + part % 2 * 8 + lane / 4, line = first + in_band;
    if (in_band >= LINES || line >= ends.outputs) continue;
    float norm = number(beside.norm[part]);
    if (ends.offset != 0.f) norm = __fadd_rn(norm, ends.offset);
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
      const int row = row_at(own, lane);
      const float result = rounded(sums[part / 2][sum_at(own) + part % 2 * 2]);
      const float wide = rounded(__fadd_rn(result, number(beside.stream[part][own])));
      if (row >= ends.rows) continue;
      const size_t place = (size_t)row * ends.outputs + line;
      ends.out[place] = bits_of(wide);
      ends.scaled[place] = bits_of(__fmul_rn(wide, norm));
      totals[own] += square(wide);
    }
  }
  if (warp >= ENDERS) return;
  // Whole numbers add up to the same sum in any order. A CTA adds once: additions to the same few places go one by one.
  __shared__ long long totals_of[ENDERS][ROWS];
#pragma unroll
  for (int own = 0; own < OWN; ++own) {
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) totals[own] += __shfl_xor_sync(~0u, totals[own], apart);
    if (lane < 4) totals_of[warp][row_at(own, lane)] = totals[own];
  }
  asm volatile("bar.sync 1, %0;" ::"n"(ENDERS * 32) : "memory");
  if (warp > 0 || lane >= ends.rows) return;
  long long total = 0;
#pragma unroll
  for (int each = 0; each < ENDERS; ++each) total += totals_of[each][lane];
  atomicAdd(ends.added + lane, (unsigned long long)total);
}
