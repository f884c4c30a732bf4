"""On a GPU a product of whole numbers is the exact sum, at any number of rows and by any cut of the table."""

import pytest
import torch

from services.common.kernels.linear import int8_kernel, reference
from services.common.kernels.linear.int8_weight import quantised
from tests.kernels.gpu.devices import randn


@pytest.mark.parametrize("depth_outputs", [(2560, 6144), (4096, 2560), (2560, 19456), (9728, 2560), (256, 512)])
def test_a_row_is_the_same_at_any_number_of_rows(depth_outputs: tuple[int, int]) -> None:
    depth, outputs = depth_outputs
    x = randn(530, depth, dtype=torch.bfloat16)
    weight = quantised(randn(outputs, depth, seed=1, dtype=torch.bfloat16).mul_(depth**-0.5))
    expected = reference.linear(x, weight)
    for rows in (1, 5, 16, 17, 32, 64, 65, 128, 129, 256, 257, 530):
        assert torch.equal(int8_kernel.linear(x[:rows], weight), expected[:rows]), rows
