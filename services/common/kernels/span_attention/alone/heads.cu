// The heads of the round's row: divided by the stream's norm, biased, normed and turned, as `store_qkv` does it. A warp makes
// a head. A lane has two neighbours of its first half and the two that turn with them.

struct Sources {
  const unsigned short *mixed, *bias, *norm;
  const long long* squares;
  const float *cosines, *sines;
  float inverse_width, eps, offset;

  __device__ __forceinline__ float scale() const { return squares ? root_scale(__ldcg(squares), inverse_width, eps) : 1.f; }
};

__device__ __forceinline__ unsigned pair_at(const unsigned short* from) { return *reinterpret_cast<const unsigned*>(from); }

// The sum over a warp, by pieces whose sums fit a word: whole numbers add up to the same in any order.
__device__ __forceinline__ long long sum_of_warp(unsigned long long number) {
  constexpr unsigned PIECE = (1u << 27) - 1;
  const unsigned long long low = add_in_warp((unsigned)number & PIECE);
  const unsigned long long middle = add_in_warp((unsigned)(number >> 27) & PIECE);
  const unsigned long long high = add_in_warp((unsigned)(number >> 54));
  return (long long)(low + (middle << 27) + (high << 54));
}

struct Line {
  int row, place;  // which of the CTA's rows, and its lane's first number among the product's
  unsigned mixed[2], bias[2], norm[2];
  float2 cosine, sine;

  // What does not come from the kernel before.
  __device__ __forceinline__ void find(const Sources& from, int which, int head, int kv_heads, int lane) {
    row = which;
    place = (row < GROUP ? head * GROUP + row : (GROUP + row - KEY) * kv_heads + head) * SIZE + lane * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      bias[half] = from.bias ? pair_at(from.bias + place + half * SIZE / 2) : 0;
      norm[half] = from.norm && row != VALUE ? pair_at(from.norm + place + half * SIZE / 2) : 0;
    }
    cosine = __ldcg(reinterpret_cast<const float2*>(from.cosines + lane * 2));
    sine = __ldcg(reinterpret_cast<const float2*>(from.sines + lane * 2));
  }

  __device__ __forceinline__ void load(const Sources& from) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      mixed[half] = __ldcg(reinterpret_cast<const unsigned*>(from.mixed + place + half * SIZE / 2));
  }

  // The pairs of both halves, as they are stored.
  __device__ __forceinline__ void make(const Sources& from, float scale, unsigned (&pairs)[2]) const {
    float x[2][2];  // of a half, the first and its neighbour
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      x[half][0] = __fmul_rn(low_of(mixed[half]), scale), x[half][1] = __fmul_rn(high_of(mixed[half]), scale);
      if (from.bias) {
        x[half][0] = __fadd_rn(x[half][0], low_of(bias[half]));
        x[half][1] = __fadd_rn(x[half][1], high_of(bias[half]));
      }
    }
    if (row != VALUE) {
      if (from.norm) divide(from, x);
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        const float low = x[0][each], high = x[1][each], by = each ? cosine.y : cosine.x, aside = each ? sine.y : sine.x;
        x[0][each] = __fmaf_rn(low, by, __fmul_rn(high, aside));
        x[1][each] = __fmaf_rn(high, by, __fsub_rn(0.f, __fmul_rn(low, aside)));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) pairs[half] = pair_of(x[half][0], x[half][1]);
  }

 private:
  __device__ __forceinline__ void divide(const Sources& from, float (&x)[2][2]) const {
    long long total = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) total += square(x[half][0]) + square(x[half][1]);
    const float root = root_scale(sum_of_warp(total), 1.f / SIZE, from.eps);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float weights[2] = {low_of(norm[half]), high_of(norm[half])};
#pragma unroll
      for (int each = 0; each < 2; ++each) {
        if (from.offset != 0.f) weights[each] = __fadd_rn(weights[each], from.offset);
        x[half][each] = __fmul_rn(__fmul_rn(x[half][each], weights[each]), root);
      }
    }
  }
};
