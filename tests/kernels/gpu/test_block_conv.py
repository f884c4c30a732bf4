"""Grouped dynamic convolution against its reference."""

import pytest
import torch

from services.common.kernels.block_conv import block_conv
from tests.kernels.gpu.devices import DEVICE


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(
    ("batch", "width", "columns", "taps", "group"), [(1, 1, 32, 2, 16), (3, 8, 96, 2, 16), (2, 5, 2080, 4, 32)]
)
def test_convolved_rows(batch: int, width: int, columns: int, taps: int, group: int, added: bool) -> None:
    generator = torch.Generator(DEVICE).manual_seed(1)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=DEVICE)

    rows_BWD, base_KD = drawn(batch, width, columns), drawn(taps, columns)
    delta_BW2KG = drawn(batch, width, 2, taps, columns // group)
    stream_BWD = drawn(batch, width, columns) if added else None
    for side in range(2):
        got = block_conv(rows_BWD, delta_BW2KG[:, :, side], base_KD, stream_BWD)
        expected = block_conv.reference(rows_BWD, delta_BW2KG[:, :, side], base_KD, stream_BWD)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_rows_of_another_block_are_never_read() -> None:
    rows_BWD = torch.full((2, 3, 32), float("nan"), device=DEVICE)
    rows_BWD[1] = 1.0
    zeros = torch.zeros(2, 3, 2, 2, device=DEVICE)
    got = block_conv(rows_BWD, zeros, torch.ones(2, 32, device=DEVICE))
    assert got[1].tolist() == [[1.0] * 32, [2.0] * 32, [2.0] * 32]
