// Who asks for the tiles of a product: one warp, or the first of four warpgroups beside its part of the products.

struct Loader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  int line, row, rank, outputs;

  __device__ void weights(int step, int stage) const {
#pragma unroll
    for (int part = 0; part < SUBS / SHARE; ++part) {
      const int sub = rank * (SUBS / SHARE) + part;
#pragma unroll
      for (int half = 0; half < HALVES; ++half)
        load<(SHARE > 1)>(ring.weight(stage, sub) + half * HALF * SUB_BYTES, weight_map, (step * SUBS + sub) * SUB,
                          line + half * outputs, ring.full_at(stage), (1u << SHARE) - 1, STREAMED);
    }
  }

  __device__ void rows(int step, int stage) const {
#pragma unroll
    for (int sub = 0; sub < SUBS; ++sub)
      load<false>(ring.x(stage, sub), x_map, (step * SUBS + sub) * SUB, row, ring.full_at(stage), 0, KEPT);
  }

  // Weights do not come from the kernel before, so the first ones are asked for while it drains.
  __device__ void begin(int steps) const {
    const int ahead = steps < STAGES ? steps : STAGES;
    for (int step = 0; step < ahead; ++step) {
      expect_bytes(ring.full_at(step), LOADED);
      weights(step, step);
    }
    await_previous();
    for (int step = 0; step < ahead; ++step) rows(step, step);
  }

  // Loads a step as soon as the one before it in its stage was multiplied.
  __device__ void next(int step, int stage, unsigned parity) const {
    await_phase(ring.empty_at(stage), parity);
    expect_bytes(ring.full_at(stage), LOADED);
    weights(step, stage);
    rows(step, stage);
  }

  __device__ void run(int steps) const {
    begin(steps);
    int stage = 0;
    unsigned parity = 0;
    for (int step = STAGES; step < steps; ++step) {
      next(step, stage, parity);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
};
