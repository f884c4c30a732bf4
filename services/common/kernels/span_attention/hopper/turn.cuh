#pragma once

// A 4x4 transpose of pairs among the four lanes of a quad; it is its own inverse.
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
