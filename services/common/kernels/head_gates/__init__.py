"""Gates of heads: each head of the mixed rows is multiplied by the softplus of a number of its own."""

from torch import Tensor

from services.common.kernels.dispatch import Operator
from services.common.kernels.gated_delta.pointwise import softplus
from services.common.kernels.normed import Normed


@Operator
def gate_heads(mixed_TF: Tensor, gates_TH: Tensor, normed: Normed | None = None, eps: float = 0.0) -> Tensor:
    """Multiply heads of rows [T, H * D] by the softplus of their gates, in place; return the rows.

    Gates that a product made of rows which wait for their norm are divided by its root first.
    """
    if normed is not None and normed.squares_T is not None:
        mean_T1 = normed.squares_T[:, None] * (2.0**-24 / normed.width)
        gates_TH = (gates_TH * (mean_T1 + eps).rsqrt()).to(gates_TH.dtype)
    wide_TH = softplus(gates_TH if gates_TH.dtype == mixed_TF.double().dtype else gates_TH.float())
    mixed_TF.unflatten(1, (gates_TH.shape[1], -1)).mul_(wide_TH.to(mixed_TF.dtype)[:, :, None])
    return mixed_TF
