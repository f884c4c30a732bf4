"""Products of many rows by algorithms of cuBLASLt that were measured to be quicker than its own choice.

They give the bits of the library's own choice: each was compared when the table was made, and the check at start
compares what a target captures (docs/exact.md).
"""

import functools
import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.linear.algorithms import ALGORITHMS
from services.common.kernels.linear.allowed import Product
from services.common.kernels.linear.cublaslt.algorithm import Algorithm, refusal
from services.common.kernels.linear.cublaslt.binding import CublasLtError, Library, loaded_library
from services.common.kernels.linear.cublaslt.header import Algo
from services.common.kernels.linear.cublaslt.problem import ALIGNMENT, Problem

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ranked:
    """A product and the algorithm that computes it."""

    problem: Problem
    algo: Algo

    def multiply(self, x_TD: Tensor, weight_FD: Tensor, out_TF: Tensor) -> Tensor:
        """Return `x @ weight.T` in `out_TF`, computed on the current stream.

        Raises:
            CublasLtError: the library refuses it.
        """
        stream = torch.cuda.current_stream(x_TD.device).cuda_stream
        self.problem.launch(self.algo, x_TD.data_ptr(), weight_FD.data_ptr(), out_TF.data_ptr(), stream)
        return out_TF


def ranked_product(x_TD: Tensor, weight_FD: Tensor, out_TF: Tensor | None = None) -> Tensor | None:
    """Return `x @ weight.T` by the table's algorithm; None where it has none, or the matrices do not suit it.

    Raises:
        CublasLtError: the library refuses what it accepted before.
    """
    if not x_TD.is_cuda or x_TD.dtype != torch.bfloat16:
        return None
    ranked = ranked_products(x_TD.device).get((weight_FD.shape[0], weight_FD.shape[1], x_TD.shape[0]))
    if ranked is None:
        return None
    if out_TF is None:
        out_TF = x_TD.new_empty((x_TD.shape[0], weight_FD.shape[0]))
    return ranked.multiply(x_TD, weight_FD, out_TF) if _suit(x_TD, weight_FD, out_TF) else None


@functools.cache
def ranked_products(device: torch.device) -> dict[Product, Ranked]:
    """Return what the table has for a GPU and the library of this process."""
    library = loaded_library()
    if library is None:
        return {}
    with torch.cuda.device(device):
        rows = ALGORITHMS.get((torch.cuda.get_device_name(device), library.version), {})
        found = {product: ranked for product, text in rows.items() if (ranked := _ranked(library, product, text))}
    _LOG.info("products by ranked algorithms", extra={"products": len(found), "cublaslt": library.version})
    return found


def _ranked(library: Library, product: Product, text: str) -> Ranked | None:
    problem, algorithm = Problem(library, *product), Algorithm.parse(text)
    try:
        why = refusal(library, *problem.check(algorithm))
    except CublasLtError as error:
        why = str(error)
    if why:
        _LOG.warning("an algorithm of the table is not used: %s", why, extra={"product": product})
        return None
    return Ranked(problem, algorithm.algo)


def _suit(*matrices: Tensor) -> bool:
    return all(
        matrix.dtype == torch.bfloat16 and matrix.is_contiguous() and matrix.data_ptr() % ALIGNMENT == 0
        for matrix in matrices
    )
