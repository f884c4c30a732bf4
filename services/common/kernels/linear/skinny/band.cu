// What a CTA does for its band of lines, of which the first is given. The build puts this into a namespace for each size.

__device__ __forceinline__ void multiply_band(const TensorMap& x_map, const TensorMap& weight_map, const Ends& ends, int depth,
                                              int first) {
  extern __shared__ unsigned char memory[];
  // From lane 0, so that the compiler knows it to be the same in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, steps = depth / (SUBS * SUB);
  unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
  asm volatile("" : "+r"(tiles));  // kept, not computed at every use
  const Ring ring{tiles + 1024, tiles, tiles + STAGES * 8};
  begin_ring(ring, WARPS);

  if (warp == WARPS) {
    const Loader loader{ring, &x_map, &weight_map, first, ends.rows};
    if (elected()) loader.run(steps);
    return;
  }
  await_previous();
  // Not sooner: of kernels that start early one after the other, some read what an earlier one has written before they wait.
  allow_next();
  Roots roots;
  Beside beside;
  if constexpr (KIND == ADDED || KIND == GATES) beside.read(ends, first, lane, warp);
  if constexpr (KIND != ADDED) roots.read(ends, lane);
  float sums[TILES][SUMS];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
    for (int at = 0; at < SUMS; ++at) sums[tile][at] = 0.f;
  hold(sums);
  int stage = 0, before = 0;
  unsigned parity = 0;
  for (int step = 0; step < steps; ++step) {
    await_phase(ring.full_at(stage), parity);
    multiply(sums, ring, stage);
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    // Nobody waits for the last stages to be empty.
    if (step > 0 && step - 1 + STAGES < steps && lane == 0) arrive(ring.empty_at(before));
    before = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  hold(sums);
  if constexpr (KIND == PLAIN || KIND == GATES) end_normed(sums, ends, roots, beside, first, lane, warp);
  if constexpr (KIND == GATED) end_gated(sums, ends, roots, first, lane, warp);
  if constexpr (KIND == ADDED) end_added(sums, ends, beside, first, lane, warp);
}
