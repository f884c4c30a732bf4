// x[rows, depth] @ weight[lines, depth]^T of up to 32 rows in bfloat16, and what follows the product in a block.
//
// The weight's lines are the left operand, of which a matrix instruction takes 64: of the last tile it multiplies what lies
// behind the band too, and nobody reads that. Every sum is one fp32 accumulator in order of depth, so a row has the bits of
// the other products. CTAs that lead may have bands of another size than those that follow.
//
// `build.cuh` defines LEADING (CTAs that lead), and of them and of those that follow LINES, SUBS and STAGES.

#include "build.cuh"
#include "tma.cuh"
#include "linear/cuda/ends.cuh"
#include "linear/skinny/band.cuh"

using Leading = Band<LEADING_LINES, LEADING_SUBS, LEADING_STAGES>;
using Following = Band<FOLLOWING_LINES, FOLLOWING_SUBS, FOLLOWING_STAGES>;

extern "C" __global__ void __launch_bounds__(WARPS * 32 + 32, 1)
    product(const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap weight_map, unsigned short* out,
            unsigned short* scaled, const unsigned short* stream, const unsigned short* norm, const long long* squares,
            unsigned long long* added, int rows, int outputs, int depth, float inverse_depth, float eps, float offset) {
  const Ends ends{out, scaled, stream, norm, squares, added, rows, outputs, inverse_depth, eps, offset};
  const int cta = blockIdx.x, behind = cta - LEADING;
  if (LEADING > 0 && behind < 0)
    Leading::run(x_map, weight_map, ends, depth, cta * Leading::OUTPUTS);
  else
    Following::run(x_map, weight_map, ends, depth, LEADING * Leading::OUTPUTS + behind * Following::OUTPUTS);
}
