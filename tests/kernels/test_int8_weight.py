"""Weights of eight bits: every number they can hold is one of bfloat16, and none is further off than half a step."""

import pytest
import torch

from services.common.kernels.linear.int8_weight import GROUP, HALF, TILE, Int8Weight, lines, quantised, widened

RANDOM = torch.Generator().manual_seed(8)


def test_every_number_is_exact_in_two_bytes() -> None:
    """All integers and all powers of two at which weights lie, as products of wide numbers and after rounding."""
    integers = torch.arange(-127, 128, dtype=torch.float64)
    for exponent in range(-100, 100):
        numbers = integers * 2.0**exponent
        assert torch.equal(numbers.bfloat16().double(), numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_number_is_off_by_half_a_step_at_most(dtype: torch.dtype) -> None:
    """A step is a power of two, of which the largest number of its group has 64 to 127."""
    weight_FD = (torch.randn(33, 300, generator=RANDOM) * torch.logspace(-6, 3, 33)[:, None]).to(dtype)
    weight_FD[5, 128:256], weight_FD[7, 3] = 0.0, 127.9
    found = quantised(weight_FD)
    wide_FD = found.widened()
    assert (found.shape, wide_FD.dtype, wide_FD.shape) == ((33, 300), dtype, weight_FD.shape)
    assert torch.equal(wide_FD.bfloat16().to(dtype), wide_FD)
    for group in range(3):
        part = slice(group * GROUP, (group + 1) * GROUP)
        step_F1 = found.scales_GF[group][:, None].double()
        largest_F = (weight_FD[:, part].double().abs().amax(1) / step_F1[:, 0])[weight_FD[:, part].any(1)]
        assert largest_F.min() >= 63.75 and largest_F.max() < 127.5
        assert torch.equal(torch.frexp(step_F1)[0], torch.full_like(step_F1, 0.5))
        assert ((wide_FD[:, part].double() - weight_FD[:, part].double()).abs() <= step_F1 / 2).all()


def test_numbers_that_are_exact_stay_as_they_are() -> None:
    integers = torch.randint(-127, 128, (7, 2 * GROUP), generator=RANDOM).float()
    integers[:, 0::GROUP] = 127.0
    assert torch.equal(quantised(integers * 2.0**-9).widened(), integers * 2.0**-9)
    tiny = torch.full((1, GROUP), 2.0**-120)
    assert torch.equal(quantised(tiny).widened(), torch.zeros_like(tiny)), "far below what a weight needs"


def test_a_word_holds_a_number_of_each_half_of_its_group() -> None:
    integers = torch.arange(2 * GROUP).remainder(125).sub(60)[None].float()
    integers[0, ::GROUP] = 127.0
    found = quantised(integers)
    words = found.words_NGTH[0, :, 0].int() & 0xFFFF
    for group in range(2):
        for place in (0, 1, HALF - 1):
            word, first = int(words[group, place]), group * GROUP + place
            assert (word & 255) - 128 == integers[0, first]
            assert (word >> 8) - 128 == integers[0, first + HALF]


def test_lines_of_a_weight_share_its_memory() -> None:
    weight_FD = torch.randn(40, 40, generator=RANDOM)
    whole = quantised(weight_FD)
    some = lines(whole, TILE, 37)
    assert isinstance(some, Int8Weight)
    assert some.words_NGTH.data_ptr() == whole.words_NGTH[1:].data_ptr()
    assert torch.equal(widened(some), widened(whole)[TILE:37])
    assert torch.equal(widened(lines(weight_FD, 3, 7)), weight_FD[3:7])
    whole.keep_wide()
    assert widened(whole) is whole.wide_FD
