"""A mixture of experts on the GPU: route, sort, two grouped products, combine.

Bytes for T rows that choose A experts: 3 A I D e, each expert's weights once. Grids and memory follow T alone, so steps
are captured; nothing is read by the host. The router's product is one of those in `linear`.
"""

from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from services.common.kernels.experts.program import (
    combine_beside_kernel,
    combine_kernel,
    expert_kernel,
    route_few_kernel,
    route_kernel,
    sort_kernel,
)
from services.common.kernels.experts.scales import ExpertScales
from services.common.kernels.experts.tiles.kernel import multiply_tiles, tile_shape
from services.common.kernels.experts.tiling import Tiling, in_tiles, most_tiles, tiling
from services.common.kernels.linear.packed_weight import GROUP
from services.common.kernels.normed import Normed
from services.common.kernels.pdl import LAUNCH, PDL

_LARGEST_CHUNK = 8192
"""Pairs of row and rank that a program sorts at a time."""
FEW = 16
"""Rows that one program routes and places: as many as the lowest tile has."""


@dataclass(frozen=True)
class ExpertStack:
    """The weights of all experts: gate and up [E, 2 I, D], the gate's lines first, and down [E, D, I].

    With `at_2E`, int64, an expert's products lie so many times eight numbers, or sixteen codes, behind these tensors,
    in any memory that the device reads. Where `followed`, one that all rows take lies behind the others, in the same
    memory. With `scales` of both products the weights are codes, uint8 each.
    """

    gate_up_EFD: Tensor
    down_EDF: Tensor
    at_2E: Tensor | None = None
    followed: bool = False
    scales: tuple[ExpertScales, ExpertScales] | None = None


@dataclass(frozen=True)
class Places:
    """Pairs of row and rank by tiles of so many places, each of one expert: those, and how many places are taken.

    A row has so many `ranks`: its experts, and behind them the one that all rows take, where that has a tile, too.
    So many tiles are `known` before there are places: the first, that expert's with the only row.
    """

    order_NR: Tensor
    tiles_2N: Tensor
    count_1: Tensor
    ranks: int
    known: int = 0

    @property
    def tiles(self) -> int:
        """Most tiles that there can be."""
        return len(self.order_NR)


@dataclass(frozen=True)
class Routes:
    """Of each row the experts by rank, int32, and their weights, float32; the number `count` stands for none.

    Few rows have places already. For others `none_1` is 0: what the first who sorts counts tiles in. With `uses_E`,
    int32, whoever makes the places adds one for each expert that has rows.
    """

    ids_TK: Tensor
    weights_TK: Tensor
    count: int
    places: Places | None = None
    uses_E: Tensor | None = None
    none_1: Tensor | None = None


@dataclass(frozen=True)
class Rating:
    """How experts are chosen and weighted, where not by a softmax alone.

    With `bias_E` they are rated by the sigmoids of a router's numbers, which `cap` bounds by tanh, and the bias counts
    for the choice alone. Weights are multiplied by `scale_E`, where there is one, and by `factor`.
    """

    bias_E: Tensor | None = None
    scale_E: Tensor | None = None
    cap: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True)
class BesideNorms:
    """Weights of norms: of the experts' sum, of what is beside it, of the sum of both, and before the next part."""

    mixed_D: Tensor
    dense_D: Tensor
    own_D: Tensor
    next_D: Tensor


def route(
    gates_TF: Tensor,
    live_T: Tensor | None,
    count: int,
    top_k: int,
    renorm: bool,
    uses_E: Tensor | None = None,
    rating: Rating | None = None,
    followed: bool = False,
    early: bool = False,
) -> Routes:
    """Choose experts by the first `count` columns of the router's product; rows that are not live get none.

    Where they are `followed`, few rows get places with the expert behind them, too. With `early` all that is older than
    gates is complete once this begins: a row alone is multiplied by that expert meanwhile.
    """
    rows = len(gates_TF)
    ids_TK = torch.empty((rows, top_k), dtype=torch.int32, device=gates_TF.device)
    weights_TK = torch.empty((rows, top_k), dtype=torch.float32, device=gates_TF.device)
    assert gates_TF.stride(1) == 1, "gates of a row lie side by side"
    rating = rating or Rating()
    how = {
        "COUNT": count, "COUNT_PAD": triton.next_power_of_2(count), "TOP_K": top_k,
        "TOP_PAD": triton.next_power_of_2(top_k), "RENORM": renorm, "CAP": rating.cap, "FACTOR": rating.factor,
        "PDL": PDL,
    }  # fmt: skip
    if rows > FEW:
        none_1 = ids_TK.new_empty(1)
        route_kernel[(rows,)](
            gates_TF, live_T, rating.bias_E, rating.scale_E, ids_TK, weights_TK, none_1, gates_TF.stride(0), **how,
            num_warps=1 if count <= 256 else 4, **LAUNCH,
        )  # fmt: skip
        return Routes(ids_TK, weights_TK, count, uses_E=uses_E, none_1=none_1)
    places = _unwritten(ids_TK, min(count, rows * top_k) + followed, FEW, top_k + followed)
    route_few_kernel[(1,)](
        gates_TF, live_T, rating.bias_E, rating.scale_E, ids_TK, weights_TK, places.order_NR, places.tiles_2N,
        places.count_1, uses_E, rows, places.tiles, gates_TF.stride(0), **how,
        ROWS=triton.next_power_of_2(rows), TILE=FEW, RANKS=places.ranks, num_warps=triton.next_power_of_2(rows),
        **LAUNCH,
    )  # fmt: skip
    return Routes(ids_TK, weights_TK, count, replace(places, known=int(early and followed and rows == 1)))


def multiply_experts(
    normed: Normed, routes: Routes, stack: ExpertStack, eps: float, cut: Tiling | None = None, gelu: bool = False
) -> Tensor:
    """Return what its experts make of each row [T, K, D]; those of no expert are not written.

    Where routes have places with the expert behind all others, its part is the last.
    """
    cut = cut or _cut_of(normed, routes, stack, gelu)
    places = sort(routes, cut)
    return multiply_down(multiply_gated(normed, stack, places, cut, eps, gelu), stack, routes, places, cut)


def _cut_of(normed: Normed, routes: Routes, stack: ExpertStack, gelu: bool) -> Tiling:
    """Return how products are cut; where CUDA C++ serves numbers, too, some rows have higher tiles."""
    pairs, ranks = routes.ids_TK.numel(), routes.ids_TK.shape[1]
    higher = None if gelu or stack.at_2E is not None or stack.scales else in_tiles(pairs, routes.count)
    if higher is not None:
        inner = stack.down_EDF.shape[2]
        if tile_shape(normed.rows_TD, stack.gate_up_EFD, None, higher.places, ranks, inner):
            return higher
    return tiling(pairs, routes.count, stack.scales is not None)


def sort(routes: Routes, cut: Tiling) -> Places:
    """Give pairs of row and rank places by expert, and cut those of an expert into tiles."""
    if routes.places is not None:
        return routes.places
    ids_P = routes.ids_TK.flatten()
    pairs = len(ids_P)
    count_1 = ids_P.new_zeros(1) if routes.none_1 is None else routes.none_1
    places = _unwritten(
        routes.ids_TK, most_tiles(pairs, routes.count, cut), cut.places, routes.ids_TK.shape[1], count_1
    )
    sort_kernel[(routes.count,)](
        ids_P, places.order_NR, places.tiles_2N, count_1, routes.uses_E, pairs, places.tiles,
        CHUNK=min(_LARGEST_CHUNK, max(16, triton.next_power_of_2(pairs))), PLACES=cut.places, PDL=PDL,
        num_warps=4 if pairs <= 1024 else 8,
        **LAUNCH,
    )  # fmt: skip
    return places


def _unwritten(ids_TK: Tensor, tiles: int, places: int, ranks: int, count_1: Tensor | None = None) -> Places:
    order_NR, tiles_2N = ids_TK.new_empty((tiles, places)), ids_TK.new_empty((2, tiles))
    return Places(order_NR, tiles_2N, ids_TK.new_empty(1) if count_1 is None else count_1, ranks)


def multiply_gated(
    normed: Normed, stack: ExpertStack, places: Places, cut: Tiling, eps: float, gelu: bool = False
) -> Tensor:
    """Return SwiGLU or GeGLU of gate and up [N R, I] of each place's row; places that are free are not written."""
    x_TD = normed.rows_TD.contiguous()
    inner_PI = x_TD.new_empty((places.order_NR.numel(), stack.down_EDF.shape[2]))
    at_E = None if stack.at_2E is None else stack.at_2E[0]
    scales = None if stack.scales is None else stack.scales[0]
    _multiply(x_TD, stack.gate_up_EFD, scales, at_E, places, cut, inner_PI, normed.squares_T, eps, gelu, places.known)
    return inner_PI


def multiply_down(inner_PI: Tensor, stack: ExpertStack, routes: Routes, places: Places, cut: Tiling) -> Tensor:
    """Return places times their expert's last product [T, K, D], by row and rank."""
    rows = len(routes.ids_TK)
    parts_PD = inner_PI.new_empty((rows * places.ranks, stack.down_EDF.shape[1]))
    at_E = None if stack.at_2E is None else stack.at_2E[1]
    scales = None if stack.scales is None else stack.scales[1]
    _multiply(inner_PI, stack.down_EDF, scales, at_E, places, cut.last, parts_PD, soon=rows == 1)
    return parts_PD.view(rows, places.ranks, -1)


def combine(
    parts_TKD: Tensor,
    routes: Routes,
    shared_TD: Tensor | None,
    gate_T: Tensor | None,
    stream_TD: Tensor,
    norm_D: Tensor,
    squares_T: Tensor,
    eps: float,
    offset: float = 0.0,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + parts`, and that sum, which overwrites the stream.

    `shared_TD` is what all rows take, times the sigmoid of `gate_T` where there is one. The norm is as
    `linear_added` begins it.
    """
    rows, ranks, width = parts_TKD.shape
    assert stream_TD.is_contiguous(), "rows must be contiguous"
    assert shared_TD is None or shared_TD.stride(1) == 1, "numbers of a row lie side by side"
    scaled_TD = torch.empty_like(stream_TD)
    combine_kernel[(rows,)](
        parts_TKD, routes.ids_TK, routes.weights_TK, shared_TD, gate_T, 0 if shared_TD is None else shared_TD.stride(0),
        0 if gate_T is None else gate_T.stride(0), stream_TD, norm_D, scaled_TD, squares_T, width,
        COUNT=routes.count, TOP_K=routes.ids_TK.shape[1], RANKS=ranks,
        WIDTH_PAD=triton.next_power_of_2(width), OFFSET=offset, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip
    return Normed(scaled_TD, squares_T), stream_TD


def combine_beside(
    parts_TKD: Tensor,
    routes: Routes,
    dense_TD: Tensor,
    stream_TD: Tensor,
    norms: BesideNorms,
    squares_T: Tensor,
    eps: float,
    offset: float = 0.0,
    scale_1: Tensor | None = None,
) -> tuple[Normed, Tensor]:
    """Return the norm of `(stream + norm(norm(parts) + norm(dense))) * scale`, and that sum, in memory of its own."""
    rows, top_k, width = parts_TKD.shape
    assert dense_TD.is_contiguous(), "rows must be contiguous"
    assert stream_TD.is_contiguous(), "rows must be contiguous"
    total_TD, scaled_TD = torch.empty_like(stream_TD), torch.empty_like(stream_TD)
    combine_beside_kernel[(rows,)](
        parts_TKD, routes.ids_TK, routes.weights_TK, dense_TD, norms.mixed_D, norms.dense_D, norms.own_D, norms.next_D,
        stream_TD, scale_1, total_TD, scaled_TD, squares_T, width, 1.0 / width, eps, COUNT=routes.count, TOP_K=top_k,
        WIDTH_PAD=triton.next_power_of_2(width), OFFSET=offset, PDL=PDL, num_warps=8, **LAUNCH,
    )  # fmt: skip
    return Normed(scaled_TD, squares_T), total_TD


def _multiply(
    x: Tensor, weight_EFD: Tensor, scales: ExpertScales | None, at_E: Tensor | None, places: Places, cut: Tiling,
    out_PF: Tensor, squares_T: Tensor | None = None, eps: float = 0.0, gelu: bool = False, known: int = 0,
    soon: bool = False,
) -> None:  # fmt: skip
    """Multiply rows [T, D] as the gate and what it gates, or places [N R, I] as the product behind them."""
    (_, lines, depth), outputs = weight_EFD.shape, out_PF.shape[1]
    gated = lines != outputs
    assert weight_EFD.is_contiguous(), "experts lie one behind the other"
    near = not gelu and at_E is None
    if near and (shape := tile_shape(x, weight_EFD, scales, places.order_NR.shape[1], places.ranks, outputs)):
        tensors = places.order_NR, places.tiles_2N, places.count_1
        multiply_tiles(shape, x, weight_EFD, scales, *tensors, squares_T, out_PF, eps)
        return
    columns = 2 * cut.depth // x.itemsize
    there = places.order_NR.shape[1]
    rows, more = (cut.rows, cut.more) if there == cut.places else (there, 0)
    band_outputs = cut.band // 2 if gated else cut.band
    table_EGL, next_stack, next_scales, shift = None, 0, 0, 0
    if scales is not None:
        columns, table_EGL = GROUP, scales.table_EGL
        next_stack, next_scales, shift = scales.strides
        weight_EFD = weight_EFD.view(torch.int32)
    expert_kernel[(places.tiles, triton.cdiv(outputs, band_outputs))](
        x, weight_EFD, table_EGL, at_E, places.order_NR, places.tiles_2N, places.count_1, squares_T, out_PF,
        outputs, depth, places.tiles, len(weight_EFD), next_stack, next_scales, shift, 1.0 / depth, eps,
        RANKS=places.ranks, ROWS=rows, MORE=more,
        BAND=cut.band, DEPTH=columns, EVEN=depth % columns == 0 and outputs % band_outputs == 0, GATED=gated, GELU=gelu,
        KNOWN=known, SOON=PDL and soon, SHORT=scales is not None and scales.short, PDL=PDL,
        num_warps=cut.warps, num_stages=cut.stages, **LAUNCH,
    )  # fmt: skip
