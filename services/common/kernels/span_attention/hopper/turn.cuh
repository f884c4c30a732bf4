#pragma once

// Four lanes have a pair of each of four eights; then each has an eight, or the other way round.
__device__ __forceinline__ void turn(unsigned (&pairs)[4], int lane) {
#pragma unroll
  for (int apart = 1; apart < 4; apart *= 2) {
    const bool upper = lane & apart;
#pragma unroll
    for (int each = 0; each < 4; ++each) {
      if (each & apart) continue;
      const unsigned got = __shfl_xor_sync(~0u, upper ? pairs[each] : pairs[each + apart], apart);
      pairs[each] = upper ? got : pairs[each];
      pairs[each + apart] = upper ? pairs[each + apart] : got;
    }
  }
}
