"""A mixture of experts in torch, for TorchScript; shapes follow the number of rows alone."""

import torch
from torch import Tensor

from services.common.kernels.gated_delta.pointwise import sigmoid
from services.common.kernels.swiglu.reference import geglu, swiglu


def in_order(x_TD: Tensor, weight_FD: Tensor) -> Tensor:
    """Return `x @ weight.T` [T, F], a row at a time: a row has the same bits in any company."""
    out_TF = torch.empty([x_TD.shape[0], weight_FD.shape[0]], dtype=x_TD.dtype, device=x_TD.device)
    for row in range(x_TD.shape[0]):
        torch.mv(weight_FD, x_TD[row], out=out_TF[row])
    return out_TF


def routed(logits_TE: Tensor, top_k: int, renorm: bool) -> tuple[Tensor, Tensor]:
    """Return the experts [T, K] that rows prefer, the lowest of equal ones first, and their weights, which are wide.

    Weights are the softmax over all experts; with `renorm` those of the experts taken add up to 1.
    """
    wide_TE = logits_TE if logits_TE.dtype == torch.float64 else logits_TE.float()
    shares_TE, ids_TE = torch.sort(torch.softmax(wide_TE, -1), dim=-1, descending=True, stable=True)
    weights_TK = shares_TE[:, :top_k]
    if renorm:
        weights_TK = weights_TK / weights_TK.sum(-1, keepdim=True)
    return ids_TE[:, :top_k], weights_TK


def rated(logits_TE: Tensor, bias_E: Tensor, top_k: int, cap: float) -> tuple[Tensor, Tensor]:
    """Return the same where experts are rated by sigmoids, and the bias counts for the choice alone.

    Weights of the experts taken add up to 1. A `cap` above 0 bounds the logits.
    """
    wide_TE = logits_TE if logits_TE.dtype == torch.float64 else logits_TE.float()
    if cap > 0.0:
        wide_TE = torch.tanh(wide_TE / cap) * cap
    rates_TE = sigmoid(wide_TE)
    order_TE = torch.sort(rates_TE + bias_E.to(rates_TE.dtype), dim=-1, descending=True, stable=True)[1]
    weights_TK = rates_TE.gather(1, order_TE[:, :top_k])
    return order_TE[:, :top_k], weights_TK / weights_TK.sum(-1, keepdim=True)


def taken(
    x_TD: Tensor,
    ids_TK: Tensor,
    gate_up_EFD: Tensor,
    down_EDF: Tensor,
    gelu: bool = False,
    uses_E: Tensor | None = None,
) -> Tensor:
    """Return what its experts make of each row [T, K, D]; each expert's weights are read once.

    `uses_E` gets one more for each expert that has rows.
    """
    top_k, experts = ids_TK.shape[1], gate_up_EFD.shape[0]
    ids_P = ids_TK.flatten()
    order_P = torch.argsort(ids_P, stable=True)
    sorted_PD = x_TD.index_select(0, order_P.div(top_k, rounding_mode="floor"))
    both_PF = torch.empty([sorted_PD.shape[0], gate_up_EFD.shape[1]], dtype=x_TD.dtype, device=x_TD.device)
    counts_E = torch.bincount(ids_P, minlength=experts)
    if uses_E is not None:
        uses_E.add_(counts_E > 0)
    counts: list[int] = counts_E.tolist()
    first = 0
    for expert, count in enumerate(counts):
        if count > 0:
            rows = slice(first, first + count)
            torch.mm(sorted_PD[rows], gate_up_EFD[expert].t(), out=both_PF[rows])
        first += count
    inner_PI, first = geglu(both_PF) if gelu else swiglu(both_PF), 0
    for expert, count in enumerate(counts):
        if count > 0:
            rows = slice(first, first + count)
            torch.mm(inner_PI[rows], down_EDF[expert].t(), out=sorted_PD[rows])
        first += count
    parts_PD = torch.empty_like(sorted_PD).index_copy_(0, order_P, sorted_PD)
    return parts_PD.view(-1, top_k, x_TD.shape[1])


def combined(parts_TKD: Tensor, weights_TK: Tensor) -> Tensor:
    """Return the weighted sum of each row's parts [T, D], added by rank and rounded once."""
    total_TD = parts_TKD[:, 0].to(weights_TK.dtype) * weights_TK[:, 0:1]
    for rank in range(1, parts_TKD.shape[1]):
        total_TD += parts_TKD[:, rank].to(weights_TK.dtype) * weights_TK[:, rank : rank + 1]
    return total_TD.to(parts_TKD.dtype)
