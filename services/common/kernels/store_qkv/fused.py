"""Projection, bias, head norms, rotation and K/V store in one launch for few rows: a band of the product is a head.

Bytes for T rows: `(Hq + 2 Hkv) D F e` of weights, once, and `T (Hq + 2 Hkv) D e` of results, which a separate launch
behind the product would read and write again. A product in CUDA C++ (`linear/skinny`) is quicker with that launch.
"""

import torch
import triton
from torch import Tensor

from services.common.kernels.linear import Normed, linear
from services.common.kernels.linear.int8_weight import Int8Weight, Weight
from services.common.kernels.linear.kernel import Engine, engine_of
from services.common.kernels.pdl import LAUNCH, PDL
from services.common.kernels.rope import Rotation
from services.common.kernels.store_qkv.kernel import store_qkv
from services.common.kernels.store_qkv.program import project_kernel

_LEAST_ROWS, _FEW_ROWS, _MOST_ROWS = 9, 16, 32
_LEAST_SIZE = 16
_DEPTH, _STAGES = 128, 5
_SHARED_BYTES = 227 * 1024


def project_qkv(
    normed: Normed,
    qkv_FD: Weight,
    norm_HD: Tensor | None,
    rotation: Rotation,
    kv_2NSHD: Tensor,
    slots_T: Tensor,
    eps: float,
    bias_F: Tensor | None = None,
    offset: float = 0.0,
    exponents_2NSH: Tensor | None = None,
) -> Tensor:
    """Return the rotated queries; store the rotated keys and the values at the rows' flat slots."""
    kv_heads, size = kv_2NSHD.shape[3:]
    fuses = exponents_2NSH is None and _fuses(normed.rows_TD, size)
    if isinstance(qkv_FD, Int8Weight) or not fuses or _in_cuda(normed.rows_TD, qkv_FD):
        mixed = Normed(linear(normed.rows_TD, qkv_FD), normed.squares_T)
        return store_qkv(
            mixed, norm_HD, rotation, kv_2NSHD, slots_T, eps, bias_F, offset, normed.width, exponents_2NSH
        )  # fmt: skip
    assert kv_2NSHD.is_contiguous(), "K/V must be contiguous"
    assert qkv_FD.stride(1) == 1, "the kernel reads a weight along its inputs"
    x_TD, heads = normed.rows_TD.contiguous(), len(qkv_FD) // size
    rows, depth = x_TD.shape
    q_THD = x_TD.new_empty((rows, heads - 2 * kv_heads, size))
    project_kernel[(heads,)](
        x_TD, qkv_FD, normed.squares_T, bias_F, norm_HD, rotation.cos_T1D,
        rotation.sin_T1D, slots_T, q_THD, kv_2NSHD, rows, depth, qkv_FD.stride(0),
        kv_2NSHD.shape[1] * kv_2NSHD.shape[2], 1.0 / depth, eps,
        ROWS=_row_tile(rows), SIZE=size, QUERIES=heads - 2 * kv_heads, KV_HEADS=kv_heads, DEPTH=_DEPTH,
        EVEN=depth % _DEPTH == 0, OFFSET=offset, PDL=PDL,
        num_stages=_STAGES, **LAUNCH,
    )  # fmt: skip
    return q_THD


def _fuses(x_TD: Tensor, size: int) -> bool:
    """Whether a head has the size of a band and its pipeline fits shared memory; very few rows take two launches."""
    whole = size >= _LEAST_SIZE and triton.next_power_of_2(size) == size
    room = _STAGES * (size + _row_tile(len(x_TD))) * _DEPTH * x_TD.element_size() <= _SHARED_BYTES
    return whole and room and _LEAST_ROWS <= len(x_TD) <= _MOST_ROWS and x_TD.dtype != torch.float64


def _in_cuda(x_TD: Tensor, qkv_FD: Tensor) -> bool:
    """Whether the product alone is quicker, since a kernel in CUDA C++ has it."""
    return engine_of(x_TD, qkv_FD) in (Engine.BANDS, Engine.TILES)


def _row_tile(rows: int) -> int:
    return _FEW_ROWS if rows <= _FEW_ROWS else _MOST_ROWS
