"""Gates of heads in torch."""

from torch import Tensor

from services.common.kernels.gated_delta.pointwise import softplus


def gate_heads(mixed_TF: Tensor, gates_TH: Tensor) -> Tensor:
    """Multiply heads of rows [T, H * D] by the softplus of their gates, in place; return the rows."""
    wide_TH = softplus(gates_TH if gates_TH.dtype == mixed_TF.double().dtype else gates_TH.float())
    mixed_TF.unflatten(1, (gates_TH.shape[1], -1)).mul_(wide_TH.to(mixed_TF.dtype)[:, :, None])
    return mixed_TF
