"""Rows of the embedding table."""

from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.embedding import reference


def embedding(ids_T: Tensor, weight_VD: Tensor, scale: float = 1.0) -> Tensor:
    """Return the rows of flat ids times `scale`; ids must lie in the table."""
    if on_kernel(weight_VD):
        from services.common.kernels.embedding import kernel

        return kernel.embedding(ids_T, weight_VD, scale)
    return reference.embedding(ids_T, weight_VD, scale)
