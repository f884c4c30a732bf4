// A row that is alone through its experts in one launch: the choice, both products, and the sum with the stream, whose norm
// begins.
//
// CTAs take pieces of work in order: first bands of an expert's gate and up, then bands of all experts' down. Who has a piece
// of the last waits for inner rows, whose pieces others took before: so no CTA waits for one that is not there yet. Lines
// stream through a ring meanwhile, those of the last product as soon as there is room. Numbers of inner rows carry the mark of
// their launch: they need no barrier, which would wait behind all that streams.

#include "experts/alone/sizes.cuh"
#include "arithmetic.cuh"
#include "barrier.cuh"
#include "bfloat16.cuh"
#include "pdl.cuh"
#include "tma.cuh"
#include "experts/alone/choice.cuh"
#include "experts/alone/pieces.cuh"
#include "linear/cuda/left.cuh"

// ExpertScales of a product: of each expert for each group of inputs, and in it for each `1 << shift` lines.
struct ExpertScales {
  const unsigned* table;
  int next_expert, next_group, shift;

  __device__ __forceinline__ const unsigned* at(int expert, int line) const {
    return table + expert * next_expert + (line >> shift);
  }
};

struct RowTask {
  const TensorMap *up_map, *down_map;
  const unsigned short *x, *gates, *norm;
  const long long* squares;
  const bool* live;
  RowRating rating;
  bool shared_gated;
  int* uses;
  ExpertScales up, down;
  unsigned short *stream, *scaled;
  unsigned long long* added;
  RowShared* shared;
  float inverse_depth, eps, offset;
};

// What a CTA's threads share.
struct RowMemory {
  RowRing ring;
  int *piece_of, *experts;
  float *weights, *parts;
  unsigned *x_words, *inner_words;
};

__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

// Takes pieces and asks for their lines: one thread of the last warp, all of which chooses.
struct PieceLoader {
  const RowTask& task;
  const RowMemory& own;
  RingTurn<STAGES> place;
  int filled = 0;

  __device__ int take() const { return (int)atomicAdd(&task.shared->taken, 1u); }

  __device__ bool choose_experts(int lane) const {
    const bool live = !task.live || task.live[0];
    const RowChoice mine = choose(task.gates, task.rating, lane);
    if (FOLLOWED && lane == TOP_K) own.experts[lane] = COUNT;
    if (lane < TOP_K) {
      own.experts[lane] = live ? mine.expert : COUNT;
      own.weights[lane] = mine.weight;
      if (task.uses && live && blockIdx.x == 0) task.uses[mine.expert] += 1;
    }
    __syncwarp();
    return live;
  }

  // The first time a stage is free anyway.
  __device__ unsigned begin_stage(int number) {
    if (filled >= STAGES) await_phase(own.ring.empty(place.stage), place.parity ^ 1);
    own.piece_of[place.stage] = number;
    return own.ring.full(place.stage);
  }

  __device__ void end_stage() {
    ++filled;
    place.advance();
  }

  __device__ void tell(int number) {
    arrive(begin_stage(number));
    end_stage();
  }

  __device__ void load_up(int number) {
    const int expert = own.experts[number / UP_BANDS], eight = number % UP_BANDS * (UP / 8);
    for (int step = 0; step < UP_STEPS; ++step) {
      const unsigned full = begin_stage(number);
      expect_bytes(full, UP_LINES * ROW);
      load_gated(own.ring.slot(place.stage), task.up_map, step * 64, eight, expert, full);
      end_stage();
    }
  }

  __device__ void load_down(int number) {
    const int line = (number - FIRST) * DOWN;
    for (int step = 0; step < DOWN_STEPS; ++step) {
      const unsigned full = begin_stage(number);
      expect_bytes(full, DOWN_LINES * ROW);
#pragma unroll
      for (int rank = 0; rank < RANKS; ++rank)
        load<false>(own.ring.slot(place.stage) + rank * DOWN * ROW, task.down_map, step * 64, own.experts[rank] * HIDDEN + line,
                    full, 0, STREAMED);
      end_stage();
    }
  }

  // Of a row that is padding nothing is multiplied: each band is told at once.
  __device__ void run(int early, int lane) {
    int number = 0;
    if (lane == 0) fetch_map(task.up_map), fetch_map(task.down_map);
    if (early && lane == 0) number = take();
    await_previous();
    allow_next();
    if (!early && lane == 0) number = take();
    const bool live = choose_experts(lane);
    if (lane > 0) return;
    for (; number < PIECES; number = take()) {
      if (!live && number >= FIRST) tell(number);
      if (live && number < FIRST) load_up(number);
      if (live && number >= FIRST) load_down(number);
    }
    // All warps have the mark when they have given back a stage.
    if (filled > 0 && filled <= STAGES) await_phase(own.ring.empty(0), 0);
    leave(live);
    tell(PIECES);
  }

  // The last CTA leaves what all share as it was found, but for the mark. Padding has none: no number would bear it, and
  // those of an old launch would, when the marks come round.
  __device__ void leave(bool live) const {
    RowShared* shared = task.shared;
    if (atomicAdd(&shared->done, 1u) != gridDim.x - 1) return;
    shared->taken = shared->done = 0;
    if (live) shared->launches = (shared->launches + 1) % MARKS;  // no two in turn have one mark, however long it runs
  }
};

// Warps that multiply sixteen lines of each piece.
struct PieceMultiplier {
  static constexpr int FOURS = (INNER / 4 + 31) / 32;  // of numbers of an inner row that a lane reads
  const RowTask& task;
  const RowMemory& own;
  int warp, lane;
  unsigned mark;
  RingTurn<STAGES> place;

  __device__ static int word_of(int pair) { return pair / 8 * 8 + pair % 4 * 2 + pair % 8 / 4; }

  // Pairs of numbers in the order of lanes: of sixteen inputs 2c, 2c + 1, 2c + 8 and 2c + 9 lie together.
  __device__ void read_row() const {
    const uint4* fours = reinterpret_cast<const uint4*>(task.x);
    for (int four = threadIdx.x; four < HIDDEN / 8; four += THREADS) {
      const uint4 pairs = __ldcg(fours + four);
      own.x_words[word_of(four * 4)] = pairs.x, own.x_words[word_of(four * 4 + 1)] = pairs.y;
      own.x_words[word_of(four * 4 + 2)] = pairs.z, own.x_words[word_of(four * 4 + 3)] = pairs.w;
    }
    meet();
  }

  __device__ StageReader reader_of(const unsigned* words) { return {own.ring, place, place, words, warp, lane}; }

  __device__ void up_piece(int number, float root) {
    const int rank = number / UP_BANDS, first = number % UP_BANDS * UP + warp * 8;
    const bool busy = warp * 8 < UP;
    StageScales scales;
    if (CODED && busy) {
      const int expert = own.experts[rank], line = min(first, INNER - 8);
      scales.read(task.up.at(expert, line), task.up.at(expert, line + INNER), task.up.next_group, UP_STEPS, lane);
    }
    float sums[4] = {0.f, 0.f, 0.f, 0.f};
    if (busy)
      sum_up<UP_STEPS>(sums, reader_of(own.x_words), scales);
    else
      reader_of(own.x_words).pass(UP_STEPS);
    const int output = first + lane / 4;
    if (!busy || lane % 4 || output >= INNER) return;
    const float gate = __fmul_rn(rounded(sums[0]), root), up = __fmul_rn(rounded(sums[2]), root);
    volatile unsigned* inner = task.shared->inner + rank * INNER;
    inner[output] = (unsigned)bits_of(gated(gate, up)) << 16 | mark;
  }

  __device__ bool of_launch(const uint4& four) const {
    return (((four.x ^ mark) | (four.y ^ mark) | (four.z ^ mark) | (four.w ^ mark)) & 0xFFFF) == 0;
  }

  // Asks for all numbers of an inner row that a lane takes, until all are of this launch.
  __device__ void await_inner(const unsigned* from, uint4 (&fours)[FOURS]) const {
    bool there = false;
    for (unsigned tries = 0; !there; ++tries) {
      there = true;
#pragma unroll
      for (int each = 0; each < FOURS; ++each) {
        const int four = min(each * 32 + lane, INNER / 4 - 1);
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fours[each].x), "=r"(fours[each].y), "=r"(fours[each].z), "=r"(fours[each].w)
                     : "l"(from + four * 4)
                     : "memory");
      }
#pragma unroll
      for (int each = 0; each < FOURS; ++each) there &= of_launch(fours[each]);
      if (tries == 1u << 24) fail();
    }
  }

  __device__ const unsigned* read_inner(int rank) const {
    unsigned* words = own.inner_words + warp * (INNER / 2);
    uint4 fours[FOURS];
    await_inner(task.shared->inner + rank * INNER, fours);
    __syncwarp();
#pragma unroll
    for (int each = 0; each < FOURS; ++each) {
      const int pair = (each * 32 + lane) * 2;
      if (pair >= INNER / 2) break;
      words[word_of(pair)] = fours[each].x >> 16 | (fours[each].y & 0xFFFF0000u);
      words[word_of(pair + 1)] = fours[each].z >> 16 | (fours[each].w & 0xFFFF0000u);
    }
    __syncwarp();
    return words;
  }

  __device__ void down_piece(int band, bool live) {
    constexpr int EACH = DOWN / SIXTEEN;
    const int rank = warp / EACH, in_band = warp % EACH * SIXTEEN;
    const bool busy = rank < RANKS;
    float sums[4] = {0.f, 0.f, 0.f, 0.f};
    if (live) {
      StageScales scales;
      const int line = band * DOWN + in_band, expert = own.experts[busy ? rank : 0];
      if (CODED && busy) {
        const int first = min(line, HIDDEN - 8), second = min(line + 8, HIDDEN - 8);
        scales.read(task.down.at(expert, first), task.down.at(expert, second), task.down.next_group, DOWN_STEPS, lane);
      }
      if (busy)
        sum_up<DOWN_STEPS>(sums, reader_of(read_inner(rank)), scales);
      else
        reader_of(own.x_words).pass(DOWN_STEPS);
    } else {
      if (lane == 0) arrive(own.ring.empty(place.stage));
      place.advance();
    }
    if (busy && lane % 4 == 0) {
      float* parts = own.parts + rank * DOWN + in_band + lane / 4;
      parts[0] = rounded(sums[0]), parts[8] = rounded(sums[2]);
    }
  }

  // Adds parts by rank, and the stream; rounds once, and begins the sum's norm.
  __device__ void combine(int line, float stream, float norm) const {
    float total = 0.f;
#pragma unroll
    for (int rank = 0; rank < TOP_K; ++rank)
      total = __fadd_rn(total, __fmul_rn(own.parts[rank * DOWN + lane], own.weights[rank]));
    if constexpr (FOLLOWED) {
      const float shared = own.parts[TOP_K * DOWN + lane];
      total = __fadd_rn(total, task.shared_gated ? times_sigmoid(shared, number(task.gates[COUNT])) : shared);
    }
    const bool mine = lane < DOWN && line < HIDDEN;
    const float wide = rounded(__fadd_rn(total, stream));
    long long squares = mine ? square(wide) : 0;
    if (mine) {
      task.stream[line] = bits_of(wide);
      task.scaled[line] = bits_of(__fmul_rn(wide, task.offset != 0.f ? __fadd_rn(norm, task.offset) : norm));
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) squares += __shfl_xor_sync(~0u, squares, apart);
    if (lane == 0) atomicAdd(task.added, (unsigned long long)squares);
  }

  __device__ void last_piece(int band, bool live) {
    const int line = band * DOWN + lane;
    const bool mine = warp == 0 && lane < DOWN && line < HIDDEN;
    const float stream = mine ? number(__ldcg(task.stream + line)) : 0.f, norm = mine ? number(task.norm[line]) : 0.f;
    down_piece(band, live);
    meet();
    if (warp == 0) combine(line, stream, norm);
    meet();
  }

  __device__ void run() {
    await_previous();
    if (mark == 0) fail();  // so it is there from here on
    const float root = task.squares ? root_scale(task.squares[0], task.inverse_depth, task.eps) : 1.f;
    read_row();
    while (true) {
      await_phase(own.ring.full(place.stage), place.parity);
      const int number = own.piece_of[place.stage];
      if (number >= PIECES) break;
      if (number < FIRST)
        up_piece(number, root);
      else
        last_piece(number - FIRST, own.experts[0] < COUNT);
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1)
    row(const __grid_constant__ TensorMap up_map, const __grid_constant__ TensorMap down_map, const unsigned short* x,
        const long long* squares, const unsigned short* gates, const bool* live, const unsigned short* bias, int* uses,
        const unsigned* up_scales, const unsigned* down_scales, unsigned short* stream, const unsigned short* norm,
        unsigned short* scaled, unsigned long long* added, RowShared* shared, int up_expert, int up_group, int up_shift,
        int down_expert, int down_group, int down_shift, float inverse_depth, float eps, float offset, float cap, float factor,
        int shared_gated, int early) {
  extern __shared__ unsigned char memory[];
  const unsigned begin = (shared_address(memory) + 1023) & ~1023u;
  unsigned char* mine = memory + (begin - shared_address(memory));
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const RowMemory own{RowRing{begin},
                      reinterpret_cast<int*>(mine + PIECES_AT),
                      reinterpret_cast<int*>(mine + EXPERTS_AT),
                      reinterpret_cast<float*>(mine + WEIGHTS_AT),
                      reinterpret_cast<float*>(mine + PARTS_AT),
                      reinterpret_cast<unsigned*>(mine + X_AT),
                      reinterpret_cast<unsigned*>(mine + INNER_AT)};
  const RowTask task{&up_map,
                     &down_map,
                     x,
                     gates,
                     norm,
                     squares,
                     live,
                     RowRating{bias, cap, factor},
                     shared_gated != 0,
                     uses,
                     ExpertScales{up_scales, up_expert, up_group, up_shift},
                     ExpertScales{down_scales, down_expert, down_group, down_shift},
                     stream,
                     scaled,
                     added,
                     shared,
                     inverse_depth,
                     eps,
                     offset};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(own.ring.full(stage), 1);
      barrier_init(own.ring.empty(stage), WARPS);
    }
    publish_barriers();
  }
  __syncthreads();
  if (warp == WARPS) {
    PieceLoader{task, own}.run(early, lane);
    return;
  }
  await_previous();
  PieceMultiplier{task, own, warp, lane, shared->mark()}.run();
}
