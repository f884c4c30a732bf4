// The thread that asks for the tiles of a product.

struct Loader {
  const Ring& ring;
  const TensorMap *x_map, *weight_map;
  int first, present;  // of the lines, and rows

  __device__ void expect(int stage) const { expect_bytes(ring.full_at(stage), SUBS * present * SUB_BYTES + W_LOADED); }

  __device__ void weights(int step, int stage) const {
    for (int sub = 0; sub < SUBS; ++sub) {
      const int depth = (step * SUBS + sub) * SUB;
      for (int line = 0; line < LINES; line += BOX) {
        const unsigned to = ring.weight(stage, sub) + line * SUB_BYTES;
        if constexpr (KIND == GATED)
          load_interleaved(to, weight_map, depth, first / 8 + line / 16, ring.full_at(stage), STREAMED);
        else
          load<false>(to, weight_map, depth, first + line, ring.full_at(stage), 0, STREAMED);
      }
    }
  }

  __device__ void rows(int step, int stage) const {
    for (int sub = 0; sub < SUBS; ++sub)
      load<false>(ring.x(stage, sub), x_map, (step * SUBS + sub) * SUB, 0, ring.full_at(stage), 0, KEPT);
  }

  // Weights do not come from the kernel before, so the ring is filled with them while it drains.
  __device__ void begin(int steps) const {
    const int ahead = steps < STAGES ? steps : STAGES;
    for (int step = 0; step < ahead; ++step) {
      expect(step);
      weights(step, step);
    }
    await_previous();
    for (int step = 0; step < ahead; ++step) rows(step, step);
  }

  __device__ void run(int steps) const {
    begin(steps);
    int stage = 0;
    unsigned parity = 0;
    for (int step = STAGES; step < steps; ++step) {
      await_phase(ring.empty_at(stage), parity);
      expect(stage);
      rows(step, stage);
      weights(step, stage);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
  }
};
