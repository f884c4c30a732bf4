"""The launch of the kernel."""

from typing import NamedTuple

from torch import Tensor

from services.common.kernels.cuda_program import TensorMap
from services.common.kernels.span_attention.cut import PROCESSORS
from services.common.kernels.span_attention.hopper.cut import ROWS, TileCut
from services.common.kernels.span_attention.hopper.source import TOKENS, Shape, program_of
from services.common.kernels.span_attention.span import Span

Own = tuple[Tensor, Tensor]
"""Keys and values [B, W, Hkv, D] of a drafter's block, all of which its rows see."""


class Parts(NamedTuple):
    """Where programs leave parts of splits [B * Hkv, parts, W * group, D] and their sums, if they share any."""

    partial: Tensor | None = None
    sums: Tensor | None = None
    each: int = 1


def launch_tiles(
    shape: Shape, cut: TileCut, span: Span, kv_2NSHD: Tensor, out_BWF: Tensor, scale: float,
    q_BWHD: Tensor, parts: Parts = Parts(), own: Own | None = None,
) -> None:  # fmt: skip
    """Enqueue it."""
    (batch, width), (kv_heads, size) = span.positions_BW.shape, kv_2NSHD.shape[3:]
    lines_of_items = batch * -(-width * shape.group // (ROWS * cut.row_groups))
    items = lines_of_items * kv_heads * cut.programs
    lines = kv_2NSHD.view(-1, kv_heads * size)
    keys, values = own or (None, None)
    grid = (kv_heads * cut.spread, lines_of_items) if cut.spread > 1 else (min(-(-items // cut.items), PROCESSORS), 1)
    program_of(shape).launch(
        grid, TensorMap(lines, min(span.block_size, TOKENS)), q_BWHD,
        span.block_table_BN, span.lengths_B, span.reach_B, span.ranks_B2, parts.partial, parts.sums, out_BWF,
        len(lines) // 2, span.block_table_BN.stride(0), span.block_table_BN.shape[1], batch, width, cut.programs,
        parts.each, scale, keys, values, *((0, 0, 0) if keys is None else keys.stride()[:3]),
    )  # fmt: skip
