"""Attention of a span of rows over paged K/V: causal for the target, context plus block for the drafter."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.span_attention import reference
from services.common.kernels.span_attention.span import (
    Mask,
    Span,
    placed,
    plan_context,
    plan_span,
    seen_through,
    seen_within,
)

__all__ = [
    "Mask", "Span", "attend_block", "attend_span", "placed", "plan_context", "plan_span", "seen_through", "seen_within",
]  # fmt: skip


def attend_span(
    q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, room_BWF: Tensor | None = None,
    exponents_2NSH: Tensor | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Let row j of a span at lengths.. attend to positions 0 .. length + j, its own included; returns [B, W, H * D].

    The keys and values of the span are already in their blocks. Contents of blocks past a row's reach never matter.
    `room_BWF` is memory for the result, where rows of several spans lie behind one another. With `exponents_2NSH` K/V
    are codes (`kv_codes`). Scores are multiplied by `scale`, without one by `D ** -0.5`.
    """
    if on_kernel(q_BWHD):
        from services.common.kernels.span_attention import kernel

        return kernel.attend_span(q_BWHD, kv_2NSHD, span, room_BWF, exponents_2NSH, scale)
    mixed_BWF = reference.attend_span(q_BWHD, kv_2NSHD, span, exponents_2NSH, scale)
    return mixed_BWF if room_BWF is None else room_BWF.copy_(mixed_BWF)


def attend_block(q_BWHD: Tensor, keys_BWHD: Tensor, values_BWHD: Tensor, kv_2NSHD: Tensor, span: Span) -> Tensor:
    """Let every row attend to the paged positions below its length and all rows of its block, or as masked."""
    if on_kernel(q_BWHD):
        from services.common.kernels.span_attention import kernel

        return kernel.attend_block(q_BWHD, keys_BWHD, values_BWHD, kv_2NSHD, span)
    return reference.attend_block(q_BWHD, keys_BWHD, values_BWHD, kv_2NSHD, span)
