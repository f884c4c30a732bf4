"""On a GPU a product by a weight of eight bits has the bits of the library's by the same numbers, at any rows."""

import pytest
import torch

from services.common.kernels.linear import int8_kernel, kernel
from services.common.kernels.linear.cublas import keep_order, library_product
from services.common.kernels.linear.int8_tiling import MOST_ROWS
from services.common.kernels.linear.int8_weight import quantised
from tests.kernels.gpu.devices import randn


@pytest.mark.parametrize(("outputs", "depth"), [(6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728), (512, 256)])
def test_a_row_is_the_same_by_its_own_kernel_and_by_the_library(outputs: int, depth: int) -> None:
    keep_order()
    x, weight = (
        randn(300, depth, dtype=torch.bfloat16),
        quantised(randn(outputs, depth, seed=1, dtype=torch.bfloat16).mul_(depth**-0.5)),
    )
    many = library_product(x, weight.widened())
    assert torch.equal(int8_kernel.linear(x, weight), many)
    for rows in (1, 5, 16, 17, 32, 33, MOST_ROWS):
        assert torch.equal(int8_kernel.linear(x[:rows], weight), many[:rows]), rows
        assert torch.equal(kernel.linear(x[:rows], weight.widened()), many[:rows]), rows
