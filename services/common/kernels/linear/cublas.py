"""Products of many rows by the library, held to algorithms that add the depth in order.

cuBLASLt's kernels that do not split the depth give the bits of this project's own products (docs/exact.md). Its
switches belong to the process: whoever multiplies on a GPU sets them once, before the first capture.
"""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor


@functools.cache
def keep_order() -> None:
    """Let the library choose among algorithms that add in order; once a process.

    Raises:
        RuntimeError: this build of torch cannot be held to them.
    """
    torch.backends.cuda.preferred_blas_library("cublaslt")
    # Neither sums in the reduced type nor a depth split among programs; the second is honoured by cuBLASLt alone.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (False, False)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = (False, False)


def library_product(x_TD: Tensor, weight_FD: Tensor, out_TF: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T` of two matrices, in `out_TF` where that is given."""
    _prepare(x_TD)
    return F.linear(x_TD, weight_FD) if out_TF is None else torch.mm(x_TD, weight_FD.t(), out=out_TF)


def _prepare(x_TD: Tensor) -> None:
    assert x_TD.ndim == 2, "a batched product may be split"
    if x_TD.is_cuda:
        assert len(x_TD) > 1 or x_TD.dtype == torch.float64, "a product of one row may be computed otherwise"
        keep_order()
