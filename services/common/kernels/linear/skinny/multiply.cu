// How the warpgroup multiplies. The build defines mma(sums, weight, x) before, one instruction of 64 lines and 16 inputs.

__device__ __forceinline__ void hold(float (&sums)[TILES][SUMS]) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) ::hold(sums[tile]);
}

__device__ __forceinline__ void multiply(float (&sums)[TILES][SUMS], const Ring& ring, int stage) {
  begin_products();
#pragma unroll
  for (int sub = 0; sub < SUBS; ++sub) {
    const unsigned long long x = descriptor(ring.x(stage, sub)), weight = descriptor(ring.weight(stage, sub));
#pragma unroll
    for (int part = 0; part < SUB / 16; ++part)
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile)
        mma(sums[tile], weight + tile * (64 * SUB_BYTES / 16) + 2 * part, x + 2 * part);  // 32 bytes further
  }
  end_products();
}
