"""The steps between a product of queries, keys and values and the output's, for many sequences of few rows."""

from torch import Tensor

from services.common.kernels.linear import Normed
from services.common.kernels.linear.int8_weight import Weight
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.span import Span


def attend_made(
    normed: Normed,
    qkv_FD: Weight,
    norm_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    span: Span,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor | None:
    """Do what `project_qkv` and then `attend_span` do, with the same bits; return the mixed rows [T, Hq * D].

    None where it does not serve, and nothing is done then: few sequences, more than eight rows of one, prompts, and all
    but an H100 or H200.
    """
    if not normed.rows_TD.is_cuda:
        return None
    from services.common.kernels.span_attention.hopper import made

    return made.attend_made(normed, qkv_FD, norm_HD, rotation, kv_2NSHD, span, eps, bias_F, offset)
