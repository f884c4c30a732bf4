"""The parts of `cublasLt.h` and `library_types.h` that products need, with their names there.

The headers of cuBLAS 13.1.0 (torch 2.11) and 13.1.1 (torch 2.13) are the same text. A number never changes within a
major version.
"""

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from typing import Any

CUBLAS_STATUS_SUCCESS = 0
CUBLAS_STATUS_NOT_SUPPORTED = 15
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_COMPUTE_32F = 68
CUDA_R_32F, CUDA_R_16BF = 0, 14
CUBLASLT_REDUCTION_SCHEME_NONE = 0
"""The dot product is performed in one sequence."""


class DescAttribute(IntEnum):
    """`CUBLASLT_MATMUL_DESC_*`, int32 each."""

    TRANSA = 3
    TRANSB = 4


class PreferenceAttribute(IntEnum):
    """`CUBLASLT_MATMUL_PREF_*`, uint64 and uint32. The least alignment of operands is 256 bytes unless it is set."""

    MAX_WORKSPACE_BYTES = 1
    REDUCTION_SCHEME_MASK = 3


class ConfigAttribute(IntEnum):
    """`CUBLASLT_ALGO_CONFIG_*`: all that an algorithm lets be read and, but for its id, written."""

    ID = 0
    TILE_ID = 1
    SPLITK_NUM = 2
    REDUCTION_SCHEME = 3
    CTA_SWIZZLING = 4
    CUSTOM_OPTION = 5
    STAGES_ID = 6
    INNER_SHAPE_ID = 7
    CLUSTER_SHAPE_ID = 8

    @property
    def kind(self) -> type[c_uint16] | type[c_uint32]:
        """How its value is stored."""
        return c_uint16 if self in (ConfigAttribute.INNER_SHAPE_ID, ConfigAttribute.CLUSTER_SHAPE_ID) else c_uint32


class Layout(ctypes.Structure):
    """`cublasLtMatrixLayoutOpaque_t`."""

    _fields_ = (("data", c_uint64 * 8),)


class Desc(ctypes.Structure):
    """`cublasLtMatmulDescOpaque_t`."""

    _fields_ = (("data", c_uint64 * 32),)


class Preference(ctypes.Structure):
    """`cublasLtMatmulPreferenceOpaque_t`."""

    _fields_ = (("data", c_uint64 * 8),)


class Algo(ctypes.Structure):
    """`cublasLtMatmulAlgo_t`, which may be stored and used again with the same version of the library."""

    _fields_ = (("data", c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algo", Algo),
        ("workspace_size", c_size_t),
        ("state", c_int),
        ("waves_count", c_float),
        ("reserved", c_int * 4),
    )


_DESC, _LAYOUT, _PREFERENCE, _ALGO = POINTER(Desc), POINTER(Layout), POINTER(Preference), POINTER(Algo)
_RESULT, _LAYOUTS = POINTER(HeuristicResult), (_LAYOUT,) * 4
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (POINTER(c_void_p),),
    # What the header's inline functions of these names, without `_internal`, call: memory is the caller's.
    "cublasLtMatmulDescInit_internal": (_DESC, c_size_t, c_int, c_int),
    "cublasLtMatrixLayoutInit_internal": (_LAYOUT, c_size_t, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatmulPreferenceInit_internal": (_PREFERENCE, c_size_t),
    "cublasLtMatmulDescSetAttribute": (_DESC, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceSetAttribute": (_PREFERENCE, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoConfigSetAttribute": (_ALGO, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoConfigGetAttribute": (_ALGO, c_int, c_void_p, c_size_t, POINTER(c_size_t)),
    "cublasLtMatmulAlgoGetHeuristic": (c_void_p, _DESC, *_LAYOUTS, _PREFERENCE, c_int, _RESULT, POINTER(c_int)),
    "cublasLtMatmulAlgoCheck": (c_void_p, _DESC, *_LAYOUTS, _ALGO, _RESULT),
    "cublasLtMatmul": (
        c_void_p, _DESC, c_void_p, c_void_p, _LAYOUT, c_void_p, _LAYOUT, c_void_p, c_void_p, _LAYOUT, c_void_p, _LAYOUT,
        _ALGO, c_void_p, c_size_t, c_void_p,
    ),
}  # fmt: skip
"""Arguments of every function that returns a status."""
OTHER_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cublasLtGetVersion": (c_size_t, ()),
    "cublasLtGetStatusName": (c_char_p, (c_int,)),
}
"""Result and arguments of the others."""
