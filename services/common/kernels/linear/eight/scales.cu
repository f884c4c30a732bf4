// How whole sums become the product's numbers, and how a warp ends its rows of a product that nothing follows.

// The scales of a tile's lines, each in one lane of every warp, and those of a lane's two rows.
struct Scales {
  static constexpr int EACH = (LINES + 31) / 32;
  float lines[EACH], rows[2];

  __device__ __forceinline__ void read(const float* of_lines, const float* of_rows, const Ends& ends, int row, int line,
                                       int lane) {
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
      const int number = each * 32 + lane, half = number / HALF, in_band = number % HALF, at = line + in_band;
      const bool inside = half < HALVES && in_band < BAND && at < ends.outputs;
      lines[each] = inside ? of_lines[at + half * ends.outputs] : 0.f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half] = row + half * 8 < ends.rows ? of_rows[row + half * 8] : 0.f;
  }

  // As `multiply_int8` computes it: both scales first, then the sum, each product rounded.
  __device__ __forceinline__ void apply(const int (&sums)[LINES / 2], float (&results)[LINES / 2], int lane) const {
#pragma unroll
    for (int eight = 0; eight < LINES / 8; ++eight) {
#pragma unroll
      for (int one = 0; one < 2; ++one) {
        const float scale = __shfl_sync(~0u, lines[eight / 4], eight % 4 * 8 + lane % 4 * 2 + one);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = eight * 4 + half * 2 + one;
          results[at] = __fmul_rn(__int2float_rn(sums[at]), __fmul_rn(scale, rows[half]));
        }
      }
    }
  }
};

// Rounds results at once, so that they take half the registers while what stands beside them is read.
__device__ __forceinline__ void round_early(float (&results)[LINES / 2]) {
#pragma unroll
  for (int at = 0; at < LINES / 2; at += 2) {
    unsigned both = pair_of(results[at], results[at + 1]);
    asm volatile("" : "+r"(both)::"memory");
    results[at] = low_of(both), results[at + 1] = high_of(both);
  }
}

__device__ __forceinline__ void end_plain(const float (&sums)[LINES / 2], const Ends& ends, int row, int line, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + half * 8;
    if (own >= ends.rows) continue;
    const float root = ends.squares ? root_scale(ends.squares[own], ends.inverse_depth, ends.eps) : 1.f;
#pragma unroll
    for (int eight = 0; eight < LINES / 8; ++eight) {
      const int at = eight * 8 + lane % 4 * 2, sum = eight * 4 + half * 2;
      const unsigned result = pair_of(sums[sum], sums[sum + 1]);
      if (at < BAND && line + at < ends.outputs)
        *reinterpret_cast<unsigned*>(ends.out + (size_t)own * ends.outputs + line + at) =
            pair_of(__fmul_rn(low_of(result), root), __fmul_rn(high_of(result), root));
    }
  }
}
