// How whole sums become the product's numbers, and how a warp ends its rows of a product that nothing follows.

// Rounds two results at once, where they shall take one register while what stands beside them is read.
__device__ __forceinline__ void round_early(float& low, float& high) {
  if constexpr (EARLY) return;
  unsigned both = pair_of(low, high);
  asm volatile("" : "+r"(both)::"memory");
  low = low_of(both), high = high_of(both);
}

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

  // An eight's results: both scales first, as in `multiply_int8`, then the sum, each product rounded.
  __device__ __forceinline__ void apply(const int (&sums)[LINES / 2], float (&results)[4], int eight, int lane) const {
#pragma unroll
    for (int one = 0; one < 2; ++one) {
      const float scale = __shfl_sync(~0u, lines[eight / 4], eight % 4 * 8 + lane % 4 * 2 + one);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = half * 2 + one;
        results[at] = __fmul_rn(__int2float_rn(sums[eight * 4 + at]), __fmul_rn(scale, rows[half]));
      }
    }
  }

  __device__ __forceinline__ void apply_all(const int (&sums)[LINES / 2], float (&results)[LINES / 2], int lane) const {
#pragma unroll
    for (int eight = 0; eight < LINES / 8; ++eight) {
      float four[4];
      apply(sums, four, eight, lane);
      round_early(four[0], four[1]);
      round_early(four[2], four[3]);
#pragma unroll
      for (int at = 0; at < 4; ++at) results[eight * 4 + at] = four[at];
    }
  }
};

// Two neighbours divided by their norm's root, rounded before and after.
__device__ __forceinline__ unsigned divided(float low, float high, float root) {
  const unsigned result = pair_of(low, high);
  return pair_of(__fmul_rn(low_of(result), root), __fmul_rn(high_of(result), root));
}

// Stores four neighbours at a time: of two eights a lane has two of each, and lanes next to one another swap them.
__device__ __forceinline__ void end_plain(const int (&sums)[LINES / 2], const Scales& scales, const Ends& ends, int row,
                                          int line, int lane) {
  const bool odd = lane % 2 != 0;
  float roots[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = row + half * 8;
    const bool waits = ends.squares && own < ends.rows;
    roots[half] = waits ? root_scale(ends.squares[own], ends.inverse_depth, ends.eps) : 1.f;
  }
#pragma unroll
  for (int eight = 0; eight < LINES / 8; eight += 2) {
    float left[4], right[4];
    scales.apply(sums, left, eight, lane);
    scales.apply(sums, right, eight + 1 < LINES / 8 ? eight + 1 : eight, lane);
    const int at = (eight + odd) * 8 + lane % 4 / 2 * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned first = divided(left[half * 2], left[half * 2 + 1], roots[half]);
      const unsigned second = divided(right[half * 2], right[half * 2 + 1], roots[half]);
      const unsigned other = __shfl_xor_sync(~0u, odd ? first : second, 1);
      const int own = row + half * 8;
      if (own < ends.rows && at < BAND && line + at < ends.outputs)
        *reinterpret_cast<uint2*>(ends.out + (size_t)own * ends.outputs + line + at) =
            odd ? make_uint2(other, second) : make_uint2(first, other);
    }
  }
}
