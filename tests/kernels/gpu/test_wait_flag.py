"""The wait for a flag from within a graph."""

import time

import pytest
import torch

from services.common.kernels.wait_flag import kernel, reached
from tests.kernels.gpu.devices import DEVICE

GENERATION, PLACE = 13, 2 * (13 % 8)
LIMIT_S = 60.0


@pytest.mark.parametrize("word", [0, 1])
@pytest.mark.parametrize(("flag", "number"), [(4, 4), (7, 4), (2**31, 2**31 - 1), (2**40, 2**40)])
def test_a_flag_that_has_come_holds_nothing_up(flag: int, number: int, word: int) -> None:
    flags = torch.full((16,), number - 1, dtype=torch.int64, device=DEVICE)
    flags[PLACE + word] = flag
    stamp = torch.tensor([number, GENERATION], device=DEVICE)
    start = time.monotonic()
    kernel.wait_flag(flags, stamp, word, LIMIT_S)
    assert flags[PLACE + word].item() == flag
    assert time.monotonic() - start < LIMIT_S
    assert reached(flags.cpu(), stamp.cpu(), word)
