"""One product `y = x @ weight.T` of matrices in bfloat16 as cuBLASLt sees it, and the algorithms that it has for it.

The library's matrices lie column after column, so its first operand is the weight, transposed, and its second is x:
[F, T] = weight_DF^T x_DT is y_TF in memory. Sums are float32, and no algorithm gets a workspace.
"""

from ctypes import byref, c_float, c_int, c_int32, c_uint32, c_uint64, sizeof
from typing import NamedTuple

from services.common.kernels.linear.cublaslt import header
from services.common.kernels.linear.cublaslt.algorithm import Algorithm
from services.common.kernels.linear.cublaslt.binding import Library
from services.common.kernels.linear.cublaslt.header import DescAttribute, PreferenceAttribute

ALIGNMENT = 256
"""Bytes at multiples of which all three matrices must begin: what the library assumes unless it is told otherwise."""


class Candidate(NamedTuple):
    """An algorithm for a product, and the bytes of workspace that it needs there."""

    algorithm: Algorithm
    workspace_bytes: int


class Problem:
    """A product of `rows` rows with a weight [outputs, depth]; all three matrices are contiguous."""

    def __init__(self, library: Library, outputs: int, depth: int, rows: int) -> None:
        """Raises CublasLtError where the library has no such product."""
        self._library = library
        self._desc = header.Desc()
        library.call(
            "cublasLtMatmulDescInit_internal",
            byref(self._desc), sizeof(self._desc), header.CUBLAS_COMPUTE_32F, header.CUDA_R_32F,
        )  # fmt: skip
        for attribute, operation in (
            (DescAttribute.TRANSA, header.CUBLAS_OP_T),
            (DescAttribute.TRANSB, header.CUBLAS_OP_N),
        ):
            value = c_int32(operation)
            library.call("cublasLtMatmulDescSetAttribute", byref(self._desc), attribute, byref(value), sizeof(value))
        self._weight = self._layout(depth, outputs)
        self._x = self._layout(depth, rows)
        self._y = self._layout(outputs, rows)
        self._one, self._zero = c_float(1.0), c_float(0.0)

    def candidates(self, count: int) -> list[Candidate]:
        """Return up to so many algorithms, the library's choice first; it is asked for no split and no workspace.

        Raises:
            CublasLtError: the library cannot tell.
        """
        preference, library = header.Preference(), self._library
        library.call("cublasLtMatmulPreferenceInit_internal", byref(preference), sizeof(preference))
        for attribute, value in (
            (PreferenceAttribute.MAX_WORKSPACE_BYTES, c_uint64(0)),
            (PreferenceAttribute.REDUCTION_SCHEME_MASK, c_uint32(header.CUBLASLT_REDUCTION_SCHEME_NONE)),
        ):
            library.call(
                "cublasLtMatmulPreferenceSetAttribute", byref(preference), attribute, byref(value), sizeof(value)
            )
        results, found = (header.HeuristicResult * count)(), c_int()
        library.call(
            "cublasLtMatmulAlgoGetHeuristic", library.handle, *self._shapes, byref(preference), count, results,
            byref(found),
        )  # fmt: skip
        fine = (result for result in results[: found.value] if result.state == header.CUBLAS_STATUS_SUCCESS)
        return [Candidate(Algorithm.of(result.algo), result.workspace_size) for result in fine]

    def check(self, algorithm: Algorithm) -> Candidate:
        """Return the algorithm with the workspace that it needs for this product.

        Raises:
            CublasLtError: the device cannot run it.
        """
        result = header.HeuristicResult()
        self._library.call(
            "cublasLtMatmulAlgoCheck", self._library.handle, *self._shapes, byref(algorithm.algo), byref(result)
        )
        return Candidate(algorithm, result.workspace_size)

    def launch(self, algo: header.Algo, x: int, weight: int, y: int, stream: int) -> None:
        """Enqueue the product of matrices at these addresses; it allocates nothing and waits for nothing.

        The first launch of a kernel loads it, which no capture allows.

        Raises:
            CublasLtError: the library refuses it.
        """
        self._library.call(
            "cublasLtMatmul", self._library.handle, byref(self._desc), byref(self._one), weight, byref(self._weight), x,
            byref(self._x), byref(self._zero), y, byref(self._y), y, byref(self._y), byref(algo), None, 0, stream,
        )  # fmt: skip

    @property
    def _shapes(self) -> tuple[object, ...]:
        layouts = (self._weight, self._x, self._y, self._y)
        return byref(self._desc), *(byref(layout) for layout in layouts)

    def _layout(self, rows: int, columns: int) -> header.Layout:
        layout = header.Layout()
        self._library.call(
            "cublasLtMatrixLayoutInit_internal",
            byref(layout), sizeof(layout), header.CUDA_R_16BF, rows, columns, rows,
        )  # fmt: skip
        return layout
