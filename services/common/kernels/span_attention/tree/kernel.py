"""Attention along trees on the GPU: one launch leaves parts, a second one adds them. Of many sequences one does all.

Bytes for contexts of n tokens: those of a chain, `B n 2 Hkv D e` once. Each node reads the split of its length again,
a sixteenth of the context or a tile, from L2.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.pdl import LAUNCH, PDL
from services.common.kernels.span_attention.cut import PROCESSORS, Cut, cut_span
from services.common.kernels.span_attention.hopper import attend_tiles, tree_tiles_of
from services.common.kernels.span_attention.merge import merge_rows
from services.common.kernels.span_attention.span import Span
from services.common.kernels.span_attention.splits import MOST_SPLITS, TILE_TOKENS
from services.common.kernels.span_attention.tree.ends import STEP
from services.common.kernels.span_attention.tree.program import merge_tree_kernel, tree_kernel

_NODE_TILE, _STAGES = 16, 3
_STEP_NUMBERS = 512
"""Of the steps of a program's nodes, each of which has as many as a head."""
_NARROW = 128
"""Bytes of a head, up to which registers hold the sums of a tile of many rows."""
_AT_ONCE = 3 * PROCESSORS
"""Programs up to which each node has one: two run on a multiprocessor at once, and some have no share and end."""
_MOST_ALONE, _WARPS_ALONE = 4, 4
"""Programs of a sequence's nodes for each K/V head that each read its whole context, at most, and their warps. Of two
the code is 114 KB, which each layer fetches anew, and of four 63."""
_LOG2_E = 1.4426950408889634


def attend_tree(
    q_BWHD: Tensor, kv_2NSHD: Tensor, span: Span, room_BWF: Tensor | None = None, exponents_2NSH: Tensor | None = None
) -> Tensor:
    """Let each node attend to its context, its ancestors and itself; the result is in `room_BWF`, where it is given."""
    mask, (batch, width, heads, size) = span.mask, q_BWHD.shape
    assert mask.lineage_BWW is not None, "nodes have lineages"
    assert not mask.window, "no kernel has windows over trees"
    q_BWHD, kv_heads = q_BWHD.contiguous(), kv_2NSHD.shape[3]
    out_BWF = q_BWHD.new_empty((batch, width, heads * size)) if room_BWF is None else room_BWF
    assert out_BWF.is_contiguous(), "results must lie row by row"
    if tiles := tree_tiles_of(q_BWHD, kv_2NSHD, span):
        none = q_BWHD.new_empty(0, dtype=torch.float32)
        attend_tiles(q_BWHD, kv_2NSHD, span, tiles, none.view(0, 0, 0, 0), none, out_BWF, size**-0.5 * _LOG2_E)
        return out_BWF
    rows, pairs, group = width * heads // kv_heads, batch * kv_heads, heads // kv_heads
    cut = cut_span(rows, pairs, size * q_BWHD.element_size(), span.short)
    shared = cut.programs * triton.cdiv(rows, cut.tile)
    beside = nodes_together(pairs, width, group, shared, size)
    many = size * q_BWHD.element_size() <= _NARROW and reads_once(pairs, -(-width // beside), cut, span.short)
    nodes, tile = nodes_of(beside, width, group, cut.tile) if many else (beside, _NODE_TILE)
    own = triton.cdiv(width, nodes) * triton.cdiv(group, tile)
    alone = cut.programs == 1 and own <= _MOST_ALONE
    parts = 0 if alone else part_count(cut.programs)
    wide = torch.float64 if q_BWHD.dtype == torch.float64 else torch.float32
    partial = torch.empty((pairs, parts, rows, size), dtype=wide, device=q_BWHD.device)
    sums = torch.empty((pairs, parts, rows, 2), dtype=wide, device=q_BWHD.device)
    shapes = {
        "WIDTH": width, "GROUP": group, "KV_HEADS": kv_heads, "SIZE": size,
        "SIZE_PAD": triton.next_power_of_2(size), "TOKENS": TILE_TOKENS, "PROGRAMS": cut.programs, "PARTS": parts,
        "WIDE": tl.float64 if wide == torch.float64 else tl.float32, "PDL": PDL, **LAUNCH,
    }  # fmt: skip
    columns = span.block_table_BN.shape[1]
    tree_kernel[(pairs, own if alone else shared + own)](
        q_BWHD, kv_2NSHD, kv_2NSHD if exponents_2NSH is None else exponents_2NSH, span.block_table_BN, span.lengths_B,
        span.positions_BW, mask.lineage_BWW, partial, sums, out_BWF, kv_2NSHD.shape[1] * kv_2NSHD.shape[2],
        span.block_table_BN.stride(0), columns, size**-0.5 * _LOG2_E, BLOCK_SIZE=span.block_size, TILE=cut.tile,
        NODES=nodes, BESIDE=beside, STEPS=TILE_TOKENS // STEP if nodes == 1 else steps_of(width), NODE_TILE=tile,
        SPLITS=MOST_SPLITS, ALONE=alone, num_warps=_WARPS_ALONE if alone else cut.warps, num_stages=_STAGES, **shapes,
    )  # fmt: skip
    if alone:
        return out_BWF
    tile, warps = merge_rows(pairs, rows)
    merge_tree_kernel[(pairs, triton.cdiv(rows, tile))](
        partial, sums, out_BWF, span.lengths_B, span.positions_BW, columns * span.block_size, ROWS=tile,
        num_warps=warps, **shapes,
    )  # fmt: skip
    return out_BWF


def nodes_together(pairs: int, width: int, group: int, shared: int, size: int) -> int:
    """Return how many nodes a program takes: as many as its tile has room for, unless there is a program for each.

    Those in one tile share what stands before the length. It changes no bit. They are a power of two, and fewer where
    paths are long: a program has the ends of all its nodes' paths in registers.
    """
    if pairs * (width + shared) <= _AT_ONCE or group > _NODE_TILE:
        return 1
    most = max(min(_NODE_TILE // group, _STEP_NUMBERS // size // steps_of(width), width), 1)
    return 1 << most.bit_length() - 1


def reads_once(pairs: int, programs: int, cut: Cut, short: bool) -> bool:
    """Whether a program of many rows reads a context once, where so many of sixteen rows would each read it.

    It takes the ends of its nodes' paths one after another, so it gains where contexts may be long, or where four
    times as many programs are more than run at once.
    """
    if cut.programs > 1 or not 1 < programs <= _MOST_ALONE:
        return False
    return not short or (programs == _MOST_ALONE and pairs > PROCESSORS)


def nodes_of(beside: int, width: int, group: int, rows: int) -> tuple[int, int]:
    """Return how many nodes a tile of so many rows takes, and its rows; some have their ends beside one another."""
    return max(beside, min(1 << (rows // group).bit_length() - 1, int(triton.next_power_of_2(width)))), rows


def steps_of(width: int) -> int:
    """Return how many steps of a tile may have nodes of so many, wherever they begin; a power of two."""
    return int(triton.next_power_of_2(min((width + STEP - 2) // STEP + 1, TILE_TOKENS // STEP)))


def part_count(programs: int) -> int:
    """Return how many parts programs leave of a row's splits that share those below its length's: at most these.

    The first program's share is one part, and the node's own are two.
    """
    return max(
        min(below + 1, MOST_SPLITS - 1) + 1 - -(-below // programs) + min(below, 1) for below in range(MOST_SPLITS)
    )
