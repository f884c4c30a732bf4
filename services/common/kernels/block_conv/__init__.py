"""Grouped dynamic convolution over the rows of a block: each row has its own kernel for each group of columns."""

from services.common.kernels.block_conv import reference
from services.common.kernels.dispatch import Operator

__all__ = ["block_conv", "block_conv_normed"]

block_conv = Operator(reference.block_conv)
block_conv_normed = Operator(reference.block_conv_normed)
