"""The wait for masks sees what another stream copies while it polls."""

import time

import pytest
import torch

from services.common.kernels.wait_masks import wait_masks
from tests.kernels.gpu.devices import DEVICE, INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SLOTS = 40


def test_a_mask_that_comes_meanwhile_is_waited_for() -> None:
    rows = torch.arange(8, dtype=torch.int32, device=DEVICE)
    masked = torch.ones(SLOTS + 1, dtype=torch.bool, device=DEVICE)
    made = torch.zeros(SLOTS + 1, dtype=torch.int64, device=DEVICE)
    number, ready = torch.ones(1, dtype=torch.int64, device=DEVICE), torch.zeros(8, dtype=torch.int32, device=DEVICE)
    host, copies = torch.ones(SLOTS + 1, dtype=torch.int64).pin_memory(), torch.cuda.Stream()
    wait_masks(rows, masked, made, number, ready, SLOTS, 0.0)  # compiles it
    torch.cuda.synchronize()
    wait_masks(rows, masked, made, number, ready, SLOTS, 20.0)
    time.sleep(0.02)
    began = time.monotonic()
    with torch.cuda.stream(copies):
        made.copy_(host, non_blocking=True)
    torch.cuda.synchronize()
    assert ready.tolist() == list(range(8))
    assert time.monotonic() - began < 10.0
