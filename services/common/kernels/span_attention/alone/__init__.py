"""What stands between two products of a layer for one row of one sequence, in one launch: store_qkv, attention, merge.

Each of a round's launches costs where processes share a GPU, and each waits for the one before. Bytes for a context of
n tokens: those of attention, and nothing else but rows.
"""

from torch import Tensor

from services.common.kernels.linear import Normed
from services.common.kernels.linear.int8_weight import Weight
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.span import Span


def attend_alone(
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
    """Do what `project_qkv` and then `attend_span` do, with the same bits; return the mixed row [1, Hq * D].

    None where it does not serve, and nothing is done then: more than a row, long contexts, and all but an H100 or H200.
    """
    if not normed.rows_TD.is_cuda:
        return None
    from services.common.kernels.span_attention.alone import kernel

    return kernel.attend_alone(normed, qkv_FD, norm_HD, rotation, kv_2NSHD, span, eps, bias_F, offset)
