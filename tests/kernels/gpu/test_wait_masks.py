"""The wait for masks from within a graph."""

import random

import pytest
import torch

from services.common.kernels.wait_masks import kernel, wait_masks
from tests.kernels.gpu.devices import DEVICE

SLOTS, LIMIT_S = 40, 0.05


@pytest.mark.parametrize("bucket", [1, 2, 5, 8, 32, 40])
@pytest.mark.parametrize("number", [1, 77, 2**40])
def test_rows_whose_masks_are_missing_are_pad_rows_once_time_is_up(bucket: int, number: int) -> None:
    source = random.Random(bucket * number)
    rows = torch.tensor([source.randrange(SLOTS) for _ in range(bucket)], dtype=torch.int32)
    masked = torch.tensor([source.random() < 0.6 for _ in range(SLOTS)] + [False])
    made = torch.tensor([number - source.choice((0, 0, 1, 5)) for _ in range(SLOTS + 1)])
    wanted, found = torch.zeros(bucket, dtype=torch.int32), torch.full((bucket,), -1, dtype=torch.int32, device=DEVICE)
    wait_masks.reference(rows, masked, made, torch.tensor([number]), wanted, SLOTS, 0.0)
    stamp = torch.tensor([number], device=DEVICE)
    kernel.wait_masks(rows.to(DEVICE), masked.to(DEVICE), made.to(DEVICE), stamp, found, SLOTS, LIMIT_S)
    assert found.tolist() == wanted.tolist()
