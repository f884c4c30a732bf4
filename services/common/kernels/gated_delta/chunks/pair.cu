// What a CTA keeps of a key head and of two of its value heads; the functions of `rounds` see one of them at a time.

struct Pair {
  struct Own {
    unsigned char values[2][2][ROWS_BYTES];
    float lower[BLOCK][SMALL_PITCH], reads[BLOCK][SMALL_PITCH], solved[BLOCK][SMALL_PITCH], half[BLOCK][SMALL_PITCH];
    half_t weights[2][2][2][BLOCK][HALF_PITCH];
    float back[2][BLOCK];
    int64 units[BLOCK];
    float ill[4][BLOCK], beta[BLOCK], down[BLOCK], since[BLOCK], until[BLOCK];
  };
  unsigned char factors[2][2][LINES_BYTES];
  unsigned char keys[2][2][ROWS_BYTES], queries[2][2][ROWS_BYTES];
  alignas(1024) Own own[2];
  float base[LINES][PITCH], query[BLOCK][PITCH];
  float conv[TAPS][4][DIM];
};
static_assert(sizeof(Pair) == 107520, "as `source.py` counts");
static_assert(sizeof(Pair::Own) % 128 == 0, "rows of eight keep their place among banks");

// Queries and keys are ill for both heads.
struct Ills {
  float (*both)[BLOCK], (*own)[BLOCK];
  __device__ float* operator[](int part) const { return part < 2 ? both[part] : own[part]; }
};

struct Block {
  unsigned char (&factors)[2][2][LINES_BYTES];
  unsigned char (&keys)[2][2][ROWS_BYTES], (&queries)[2][2][ROWS_BYTES], (&values)[2][2][ROWS_BYTES];
  float (&base)[LINES][PITCH], (&query)[BLOCK][PITCH];
  float (&lower)[BLOCK][SMALL_PITCH], (&reads)[BLOCK][SMALL_PITCH], (&solved)[BLOCK][SMALL_PITCH], (&half)[BLOCK][SMALL_PITCH];
  half_t (&weights)[2][2][2][BLOCK][HALF_PITCH];
  float (&back)[2][BLOCK];
  int64 (&units)[BLOCK];
  Ills ill;
  float (&beta)[BLOCK], (&down)[BLOCK], (&since)[BLOCK], (&until)[BLOCK];

  __device__ Block(Pair& pair, int which) : Block(pair, pair.own[which]) {}
  __device__ Block(Pair& pair, Pair::Own& own)
      : factors(pair.factors), keys(pair.keys), queries(pair.queries), values(own.values), base(pair.base),
        query(pair.query), lower(own.lower), reads(own.reads), solved(own.solved), half(own.half), weights(own.weights),
        back(own.back), units(own.units), ill{pair.own[0].ill, own.ill}, beta(own.beta), down(own.down),
        since(own.since), until(own.until) {}
};

struct Memory {
  struct Blocks {
    Block only;
    __device__ Block& operator[](int) { return only; }
  } blocks;
  struct Taps {
    float (&conv)[TAPS][4][DIM];
    int own;
    struct Parts {
      float (&parts)[4][DIM];
      int own;
      __device__ float* operator[](int part) const { return parts[part < 2 ? part : 2 + own]; }
    };
    __device__ Parts operator[](int tap) const { return {conv[tap], own}; }
  } conv;

  __device__ Memory(Pair& pair, int which) : blocks{Block(pair, which)}, conv{pair.conv, which} {}
};
