// What follows a product in a block, operation by operation as the programs in Triton compute it.

__device__ __forceinline__ unsigned pair_of(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ __forceinline__ float low_of(unsigned both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_of(unsigned both) { return __uint_as_float(both & 0xFFFF0000u); }

// As `sums.root_scale`, `linear_kernel` and `sums.squares` compute them, operation by operation.
__device__ __forceinline__ float root_scale(long long squares, float inverse_depth, float eps) {
  float root;
  const float mean = __fmaf_rn(__ll2float_rn(squares), __fmul_rn(inverse_depth, 5.9604644775390625e-08f), eps);
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(mean));
  return root;
}

__device__ __forceinline__ float gated(float gate, float up) {
  float power, quotient;
  asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(__fmul_rn(__fsub_rn(0.f, gate), 1.44269504f)));
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(gate), "f"(__fadd_rn(power, 1.f)));
  return __fmul_rn(quotient, up);
}

__device__ __forceinline__ long long square(float x) {
  return __float2ll_rz(__fadd_rn(__fmul_rn(fminf(__fmul_rn(x, x), 34359738368.f), 16777216.f), 0.5f));
}

struct Ends {
  unsigned short *out, *scaled;
  const unsigned short *stream, *norm;
  const long long* squares;
  unsigned long long* added;
  int rows, outputs;
  float inverse_depth, eps, offset;
};

// A lane has two neighbours of a row in each eight lines, of rows r and r + 8.
__device__ __forceinline__ void end_gated(const float (&sums)[LINES / 2], const Ends& ends, int row, int line, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + half * 8;
    if (own >= ends.rows) continue;
    const float root = ends.squares ? root_scale(ends.squares[own], ends.inverse_depth, ends.eps) : 1.f;
#pragma unroll
    for (int eight = 0; eight < HALF / 8; ++eight) {
      const int at = eight * 8 + lane % 4 * 2, gate = eight * 4 + half * 2, up = gate + HALF / 2 * (HALVES - 1);
      const unsigned gates = pair_of(sums[gate], sums[gate + 1]), ups = pair_of(sums[up], sums[up + 1]);
      const float low = gated(__fmul_rn(low_of(gates), root), __fmul_rn(low_of(ups), root));
      const float high = gated(__fmul_rn(high_of(gates), root), __fmul_rn(high_of(ups), root));
      if (at < BAND && line + at < ends.outputs)
        *reinterpret_cast<unsigned*>(ends.out + (size_t)own * ends.outputs + line + at) = pair_of(low, high);
    }
  }
}

__device__ __forceinline__ void end_added(const float (&sums)[LINES / 2], const Ends& ends, int row, int line, int lane,
                                          const unsigned (&streams)[LINES / 4], const unsigned (&norms)[LINES / 8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + half * 8;
    long long total = 0;
#pragma unroll
    for (int eight = 0; eight < LINES / 8; ++eight) {
      const int at = eight * 8 + lane % 4 * 2, sum = eight * 4 + half * 2;
      if (own >= ends.rows || at >= BAND || line + at >= ends.outputs) continue;
      const unsigned result = pair_of(sums[sum], sums[sum + 1]), stream = streams[eight * 2 + half];
      const unsigned wide = pair_of(__fadd_rn(low_of(result), low_of(stream)), __fadd_rn(high_of(result), high_of(stream)));
      float low = low_of(norms[eight]), high = high_of(norms[eight]);
      if (ends.offset != 0.f) low = __fadd_rn(low, ends.offset), high = __fadd_rn(high, ends.offset);
      const size_t place = (size_t)own * ends.outputs + line + at;
      *reinterpret_cast<unsigned*>(ends.out + place) = wide;
      *reinterpret_cast<unsigned*>(ends.scaled + place) = pair_of(__fmul_rn(low_of(wide), low), __fmul_rn(high_of(wide), high));
      total += square(low_of(wide)) + square(high_of(wide));
    }
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    // Whole numbers add up to the same sum in any order.
    if (lane % 4 == 0 && own < ends.rows) atomicAdd(ends.added + own, (unsigned long long)total);
  }
}
