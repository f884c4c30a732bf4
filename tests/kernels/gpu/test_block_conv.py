"""Grouped dynamic convolution against its reference."""

import pytest
import torch

from services.common.kernels.block_conv import block_conv, block_conv_normed
from tests.kernels.gpu.devices import DEVICE, DTYPES


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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "width", "columns", "taps", "group"), [(3, 8, 96, 2, 16), (2, 5, 2080, 4, 32)])
def test_the_norm_behind_is_that_of_the_stream(
    batch: int, width: int, columns: int, taps: int, group: int, dtype: torch.dtype
) -> None:
    """What padding columns hold does not count, and a row is the same in any company."""
    draw = torch.Generator().manual_seed(2)
    rows, stream = (torch.randn(batch, width, columns, generator=draw).to(DEVICE, dtype) for _ in range(2))
    base, norm = torch.randn(taps, columns, generator=draw), torch.rand(columns, generator=draw) + 0.5
    delta = torch.randn(batch, width, taps, columns // group, generator=draw).to(DEVICE, dtype)
    base, norm = base.to(DEVICE, dtype), norm.to(DEVICE, dtype)
    got = block_conv_normed(rows, delta, base, stream, norm, 1e-6, 1.0)
    expected = block_conv_normed.reference(rows, delta, base, stream, norm, 1e-6, 1.0)
    close = 1e-5 if dtype == torch.float32 else 4e-2
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=close, rtol=close)
    alone = block_conv_normed(
        rows[:1].contiguous(), delta[:1].contiguous(), base, stream[:1].contiguous(), norm, 1e-6, 1.0
    )
    assert all(torch.equal(one, whole[:1]) for one, whole in zip(alone, got, strict=True))


def test_rows_of_another_block_are_never_read() -> None:
    rows_BWD = torch.full((2, 3, 32), float("nan"), device=DEVICE)
    rows_BWD[1] = 1.0
    zeros = torch.zeros(2, 3, 2, 2, device=DEVICE)
    got = block_conv(rows_BWD, zeros, torch.ones(2, 32, device=DEVICE))
    assert got[1].tolist() == [[1.0] * 32, [2.0] * 32, [2.0] * 32]
