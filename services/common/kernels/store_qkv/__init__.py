"""The steps between a layer's norm and its attention: projection, head norms, rotation, and the K/V store."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.store_qkv import reference

__all__ = ["project_qkv"]

project_qkv = Operator(reference.project_qkv, told_by=4)
