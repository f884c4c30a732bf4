"""The launch for a row that is alone, and what it is made for."""

from functools import cache, partial

import torch
from torch import Tensor

from services.common.kernels.ahead import kept
from services.common.kernels.cuda_program import compiles
from services.common.kernels.experts.alone.source import Shape, program_of
from services.common.kernels.experts.kernel import ExpertStack, Rating
from services.common.kernels.experts.maps import GatedLines, StackedLines
from services.common.kernels.normed import Normed

_SHIFT = 3


@cache
def words_alone(words: int, device: torch.device) -> Tensor:
    """Return what CTAs of a launch share; launches on a device run one after the other."""
    return torch.zeros(words, dtype=torch.int32, device=device)


def mix_alone(
    normed: Normed, gates_TF: Tensor, live_T: Tensor | None, stack: ExpertStack, rating: Rating, shape: Shape,
    uses_E: Tensor | None, stream_TD: Tensor, norm_D: Tensor, squares_T: Tensor, eps: float, offset: float,
    shared_gated: bool, early: bool,
) -> tuple[Normed, Tensor]:  # fmt: skip
    """Return the begun norm of `stream + experts(row)`, and that sum, which overwrites the stream.

    Its squares are added to `squares_T`. What all rows take is multiplied by the sigmoid of the gate behind those of
    experts, if it is `shared_gated`. With `early` all that is older than gates is complete once this begins.
    """
    scaled_TD, count = torch.empty_like(stream_TD), shape.experts + shape.followed
    tables: tuple[Tensor | None, Tensor | None] = None, None
    strides = 0, 0, 0, 0, 0, 0
    if stack.scales is not None:
        up, down = stack.scales
        tables, strides = (up.table_EGL, down.table_EGL), (*up.strides, *down.strides)
    program_of(shape).launch(
        (shape.ctas, 1), GatedLines(stack.gate_up_EFD, shape.up, count),
        StackedLines(stack.down_EDF, shape.down, count), normed.rows_TD, normed.squares_T, gates_TF, live_T,
        rating.bias_E, uses_E, *tables, stream_TD, norm_D, scaled_TD, squares_T,
        words_alone(shape.words, stream_TD.device), *strides, 1.0 / shape.hidden, eps, offset, rating.cap,
        rating.factor, int(shared_gated), int(early),
    )  # fmt: skip
    return Normed(scaled_TD, squares_T), stream_TD


def shape_alone(
    normed: Normed, gates_TF: Tensor, stack: ExpertStack, rating: Rating, count: int, top_k: int, renorm: bool
) -> Shape | None:
    """Return what the kernel is built for, where a SwiGLU's gate is; None where others serve."""
    x_TD, scales, bias_E = normed.rows_TD, stack.scales, rating.bias_E
    if len(x_TD) != 1 or not x_TD.is_cuda or x_TD.dtype != torch.bfloat16 or gates_TF.dtype != torch.bfloat16:
        return None
    if rating.scale_E is not None or stack.at_2E is not None or (bias_E is not None and bias_E.dtype != x_TD.dtype):
        return None
    if scales is not None and (scales[0].short != scales[1].short or min(scales[0].shift, scales[1].shift) < _SHIFT):
        return None
    _, hidden, inner = stack.down_EDF.shape
    kind = scales is not None, scales is not None and scales[0].short, bias_E is not None, stack.followed
    shape = Shape(hidden, inner, count, top_k, renorm, *kind)
    return shape if shape.fits() and _usable(x_TD.device, shape) else None


@kept
def _usable(device: torch.device, shape: Shape) -> bool:
    """Whether the GPU is of the measured kind and the kernel was compiled for it; what is not compiled is logged."""
    otherwise = f"a row alone goes through {shape.experts} experts in several launches"
    return compiles(device, otherwise, partial(program_of, shape))
