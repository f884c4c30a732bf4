"""Matrix products of a few rows with a weight, alone or fused with the other steps of a block."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.linear import reference
from services.common.kernels.linear.grouped.weight import GroupedWeight
from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.kernels.linear.weight import Weight
from services.common.kernels.normed import Normed

__all__ = [
    "Normed",
    "linear",
    "linear_added",
    "linear_gated",
    "linear_gates",
    "linear_normed",
]


def linear(x_TD: Tensor, weight_FD: Weight, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T`, [T, F], in the memory `out_TF` where that is given."""
    if not on_kernel(x_TD):
        return reference.linear(x_TD, weight_FD, out_TF)
    from services.common.kernels.linear import int8_kernel, kernel, packed_kernel
    from services.common.kernels.linear.grouped import kernel as grouped_kernel

    if isinstance(weight_FD, Int8Weight):
        return int8_kernel.linear(x_TD, weight_FD, out_TF)
    if isinstance(weight_FD, PackedWeight):
        return packed_kernel.linear(x_TD, weight_FD, out_TF)
    if isinstance(weight_FD, GroupedWeight):
        return grouped_kernel.linear(x_TD, weight_FD, out_TF)
    return kernel.linear(x_TD, weight_FD, out_TF)


def linear_gated(normed: Normed, weight_FD: Weight, eps: float, gelu: bool = False) -> Tensor:
    """Return SwiGLU of `norm @ weight.T`, [T, I], of a weight [2 I, D] that holds the gate's rows first.

    With `gelu` it is GeGLU, by tanh's approximation.
    """
    if not on_kernel(normed.rows_TD):
        return reference.linear_gated(normed, weight_FD, eps, gelu)
    from services.common.kernels.linear import int8_kernel, kernel, packed_kernel
    from services.common.kernels.linear.grouped import kernel as grouped_kernel

    if gelu:
        from services.common.kernels.swiglu.kernel import swiglu

        return swiglu(linear(normed.rows_TD, weight_FD), normed.squares_T, normed.width, eps, gelu=True)
    if isinstance(weight_FD, Int8Weight):
        return int8_kernel.linear_gated(normed, weight_FD, eps)
    if isinstance(weight_FD, PackedWeight):
        return packed_kernel.linear_gated(normed, weight_FD, eps)
    if isinstance(weight_FD, GroupedWeight):
        return grouped_kernel.linear_gated(normed, weight_FD, eps)
    return kernel.linear_gated(normed, weight_FD, eps)


def linear_normed(normed: Normed, weight_FD: Tensor, eps: float) -> Tensor:
    """Return `norm @ weight.T`, [T, F], divided by the norm's root where that waits for a product."""
    if on_kernel(weight_FD):
        from services.common.kernels.linear import kernel

        return kernel.linear_normed(normed, weight_FD, eps)
    return reference.linear_normed(normed, weight_FD, eps)


def linear_gates(normed: Normed, weight_FD: Tensor, mixed_TF: Tensor, eps: float) -> Tensor:
    """Multiply rows [T, F] by the sigmoid of `norm @ weight.T`, in place; return them."""
    if on_kernel(weight_FD):
        from services.common.kernels.linear import kernel

        return kernel.linear_gates(normed, weight_FD, mixed_TF, eps)
    return reference.linear_gates(normed, weight_FD, mixed_TF, eps)


def linear_added(
    x_TD: Tensor,
    weight_FD: Weight,
    stream_TF: Tensor,
    norm_F: Tensor,
    eps: float,
    keep: bool = False,
    offset: float = 0.0,
    squares_T: Tensor | None = None,
    routed: bool = False,
) -> tuple[Normed, Tensor]:
    """Return the norm of `stream + x @ weight.T`, and that sum, which may overwrite the stream unless `keep`.

    The norm multiplies by `norm + offset`. `squares_T` are zeros, int64, for the squares that it is divided by: a model
    clears those of all its layers at once. A router waits less for rows that are `routed` next.
    """
    if not on_kernel(x_TD):
        return reference.linear_added(x_TD, weight_FD, stream_TF, norm_F, eps, offset)
    from services.common.kernels.linear import int8_kernel, kernel, packed_kernel
    from services.common.kernels.linear.grouped import kernel as grouped_kernel

    if isinstance(weight_FD, Int8Weight):
        return int8_kernel.linear_added(x_TD, weight_FD, stream_TF, norm_F, eps, offset, squares_T)
    if isinstance(weight_FD, GroupedWeight):
        return grouped_kernel.linear_added(x_TD, weight_FD, stream_TF, norm_F, eps, offset, squares_T)
    if isinstance(weight_FD, PackedWeight):
        return packed_kernel.linear_added(x_TD, weight_FD, stream_TF, norm_F, eps, keep, offset, squares_T)
    return kernel.linear_added(x_TD, weight_FD, stream_TF, norm_F, eps, keep, offset, squares_T, routed=routed)
