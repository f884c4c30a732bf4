"""A product that takes every multiprocessor, beside a step that waits for another process's flag on one of them."""

import statistics
from itertools import pairwise

import pytest
import torch

from services.common.kernels.linear import linear
from services.common.kernels.wait_flag import wait_flag
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
VOCAB, DEPTH, ROWS = 151_936, 2560, 128
LIMIT_S = 5.0


def test_a_product_takes_no_longer_beside_a_wait() -> None:
    """Its CTAs need nearly all shared memory; one that found no room would start when another has ended."""
    x_TD, head_VD = randn(ROWS, DEPTH, dtype=torch.bfloat16), randn(VOCAB, DEPTH, seed=1, dtype=torch.bfloat16)
    room_TV = torch.empty(ROWS, VOCAB, dtype=torch.bfloat16, device=DEVICE)
    flags, stamp = torch.zeros(16, dtype=torch.int64, device=DEVICE), torch.zeros(2, dtype=torch.int64, device=DEVICE)
    waiting = torch.cuda.Stream()

    def took_ms() -> float:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(8)]
        for mark in marks:
            mark.record()
            linear(x_TD, head_VD, room_TV)
        marks[-1].synchronize()
        return float(statistics.median(before.elapsed_time(after) for before, after in pairwise(marks)))

    wait_flag(flags, stamp, 0, LIMIT_S)  # reached already: it compiles the kernel
    took_ms()
    alone = took_ms()
    stamp[0] = 1
    torch.cuda.synchronize()
    with torch.cuda.stream(waiting):
        wait_flag(flags, stamp, 0, LIMIT_S)
    beside = took_ms()
    assert not waiting.query(), "the wait ended before the products"
    flags[0] = 1
    waiting.synchronize()
    print(f"{alone * 1e3:.0f} us alone, {beside * 1e3:.0f} us beside a wait")
    assert beside < 1.2 * alone
