// x[rows, depth] @ weight[lines, depth]^T of some hundred rows in bfloat16, and what follows the product in a block.
//
// Every sum is one fp32 accumulator in order of depth, so a row has the bits of the other products. A CTA streams its
// lines of the weight and its rows of x through a ring of stages in shared memory. The build puts the other files
// of this folder in front of this one.

extern "C" __global__ void __launch_bounds__(GROUPS * GROUP + (BESIDE ? 0 : 32), 1) __cluster_dims__(SHARE, 1, 1)
    product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map,
            unsigned short* out, unsigned short* scaled, const unsigned short* stream, const unsigned short* norm,
            const long long* squares, unsigned long long* added, int rows, int outputs, int depth, float inverse_depth,
            float eps, float offset) {
  extern __shared__ unsigned char memory[];
  // From lane 0, so that the compiler knows it to be the same in a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, steps = depth / (SUBS * SUB);
  unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
  asm volatile("" : "+r"(tiles));  // kept, not computed at every use
  const Ring ring{tiles, tiles + STAGES * STAGE, tiles + STAGES * STAGE + STAGES * 8};
  const int rank = SHARE > 1 ? int(cluster_rank()) : 0, line = int(blockIdx.x) / SHARE * BAND;
  const int first_row = (int(blockIdx.y) * SHARE + rank) * ROWS;
  const Ends ends{out, scaled, stream, norm, squares, added, rows, outputs, inverse_depth, eps, offset};
  allow_next();
  begin_ring(ring, SHARE * GROUPS * 4);

  const Loader loader{ring, &x_map, &weight_map, line, first_row, rank, outputs};
  if (warp == GROUPS * 4) {
    if (elected()) loader.run(steps);
    __syncwarp();
    cluster_arrive();
  } else {
    const int group = warp / 4, row = first_row + group * 64 + (warp % 4) * 16 + lane / 4;
    unsigned streams[LINES / 4], norms[LINES / 8];
    if (BESIDE && warp == 0 && elected()) loader.begin(steps);
    __syncwarp();
    await_previous();
    if constexpr (!GATED) read_beside(ends, row, line, lane, streams, norms);
    float sums[LINES / 2];
#pragma unroll
    for (int number = 0; number < LINES / 2; ++number) sums[number] = 0.f;
    hold(sums);
    int stage = 0, before = 0;
    unsigned parity = 0;
    for (int step = 0; step < steps; ++step) {
      await_phase(ring.full_at(stage), parity);
      multiply(sums, ring, stage, group);
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      // Nobody waits for the last stages to be empty, so nobody hears of them: a CTA may be gone by then.
      const int after = step - 1 + STAGES;
      if (step > 0 && after < steps) {
        if (lane < SHARE) arrive_at(ring.empty_at(before), lane);
        if constexpr (BESIDE) {
          if (warp == 0 && elected()) loader.next(after, before, (step - 1) / STAGES % 2);
          __syncwarp();
        }
      }
      before = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    hold(sums);
    cluster_arrive();
    if constexpr (GATED)
      end_gated(sums, ends, row, line, lane);
    else
      end_added(sums, ends, row, line, lane, streams, norms);
  }
  cluster_wait();
}
