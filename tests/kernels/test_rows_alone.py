"""What the CPU path computes for a row in float32 has the same bits whatever rows are beside it.

Attention and products by weights that float16 cannot hold are not among it: their libraries choose the order of a sum
by the number of rows.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear.product import HalfProduct, product
from services.common.kernels.rms_norm.reference import add_rms_norm, rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope
from services.common.kernels.swiglu.reference import swiglu

ROWS = 65
PRODUCTS = (
    (512, 256), (256, 256), (1536, 256), (256, 768), (1024, 256),  # the embedded target
    (128, 32), (32, 64), (320, 32), (33, 77),  # the made-up one, and a shape that no vector divides
)  # fmt: skip
GENERATOR = torch.Generator().manual_seed(20)


def assert_rows_alone(compute: Callable[[Tensor], Tensor], x_TX: Tensor) -> None:
    """Compares each number of rows, from the first and from the seventh on, with all; then all beside NaN."""
    whole_TX = compute(x_TX)
    for count in range(1, len(x_TX)):
        for first in {0, min(7, len(x_TX) - count)}:
            part_TX = compute(x_TX[first : first + count].clone())
            assert torch.equal(part_TX, whole_TX[first : first + count]), (count, first)
    spoilt_TX = x_TX.clone()
    spoilt_TX[::2] = torch.nan
    assert torch.equal(compute(spoilt_TX)[1::2], whole_TX[1::2])


@pytest.mark.parametrize(("outputs", "depth"), PRODUCTS)
def test_products_by_weights_of_two_bytes(outputs: int, depth: int) -> None:
    weight_FD = torch.randn(outputs, depth, generator=GENERATOR).mul_(0.05).bfloat16().float()
    half = product(weight_FD)
    assert isinstance(half, HalfProduct)
    assert_rows_alone(half, torch.randn(ROWS, depth, generator=GENERATOR))


def test_norms_and_swiglu() -> None:
    x_TD = torch.randn(ROWS, 256, generator=GENERATOR)
    weight_D = torch.randn(256, generator=GENERATOR)
    assert_rows_alone(lambda part_TD: rms_norm(part_TD, weight_D, 1e-6), x_TD)
    assert_rows_alone(lambda part_TD: add_rms_norm(part_TD, part_TD * 0.3, weight_D, 1e-6)[0], x_TD)
    assert_rows_alone(swiglu, torch.randn(ROWS, 1536, generator=GENERATOR))


def test_head_norms_and_rotation() -> None:
    weight_HD, angle_T1D = torch.randn(6, 64, generator=GENERATOR), torch.randn(ROWS, 1, 64, generator=GENERATOR)

    def turned(rows_TX: Tensor) -> Tensor:
        """Rows come with their angles behind, so that a part keeps its own."""
        x_THD, angle = rows_TX[:, :-64].unflatten(1, (6, 64)), rows_TX[:, None, -64:]
        return norm_rope(x_THD, weight_HD, Rotation(angle.cos(), angle.sin()), 1e-6)

    x_TX = torch.cat((torch.randn(ROWS, 6 * 64, generator=GENERATOR), angle_T1D[:, 0]), 1)
    assert_rows_alone(turned, x_TX)
