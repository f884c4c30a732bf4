"""What stands between two products of a layer, in one launch: head norms, rotation, the K/V store and attention.

Each of a round's launches costs where processes share a GPU, and each waits for the one before. Bytes for a context of
n tokens: those of attention, and nothing else but rows.
"""

from torch import Tensor

from services.common.kernels.linear import Normed, linear
from services.common.kernels.linear.weight import Weight
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention.span import Span
from services.common.kernels.span_attention.types import Heads


def attend_projected(
    normed: Normed,
    qkv_FD: Weight,
    norm_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    span: Span,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
    mixed_TF: Tensor | None = None,
    gates_TH: Tensor | None = None,
) -> Tensor | None:
    """Do what `project_qkv` and then `attend_span` do, with the same bits; return the mixed rows [T, Hq * D].

    With `mixed_TF` the product was the last launch: the first lines of a weight that has more behind those of heads.
    With `gates_TH` of that launch, do what `gate_heads` does then, too.

    A kernel serves the only row of the only sequence, if its context is short. None elsewhere, where nothing is done,
    and on all but an H100 or H200.
    """
    if not normed.rows_TD.is_cuda or not isinstance(qkv_FD, Tensor):
        return None
    from services.common.kernels.span_attention.alone import kernel as alone

    lines = len(qkv_FD) if mixed_TF is None else mixed_TF.shape[1]
    if not alone.serves(normed, qkv_FD, lines, norm_HD, rotation, kv_2NSHD, span, bias_F, gates_TH):
        return None
    if mixed_TF is None:
        mixed_TF = linear(normed.rows_TD, qkv_FD)
    heads = Heads(
        mixed_TF, normed.squares_T, bias_F, norm_HD, rotation.cos_T1D, rotation.sin_T1D,
        span.slots_T, kv_2NSHD, 1.0 / max(normed.width, 1), eps, offset,
    )  # fmt: skip
    return alone.attend_mixed(heads, span, gates_TH)
