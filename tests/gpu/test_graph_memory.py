"""What captured steps hold: the most that one needs at once, not a piece for each tensor."""

from __future__ import annotations

import pytest
import torch

from services.common.device.graph import StepGraphs
from tests.kernels.gpu.devices import DEVICE, INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
MIB = 1 << 20
SLACK = 4 * MIB


def test_tensors_of_many_sizes_share_one_piece() -> None:
    out = torch.zeros(1, device=DEVICE)

    def step(scale: int) -> None:
        """Holds one tensor at a time, each larger than the one before: none fits where another was."""
        for size in (20, 40, 80, 160):
            out.add_(torch.ones(size * scale * MIB // 16, device=DEVICE).sum())

    graphs = StepGraphs(DEVICE)
    for scale in (4, 2, 1):
        graphs.capture(scale, lambda scale=scale: step(scale), (out,))  # type: ignore[misc]
    graphs.settle()
    assert graphs.cost.held_bytes <= 160 * MIB + SLACK
    out.zero_()
    graphs.replay(1)
    assert out.item() == sum(size * MIB // 16 for size in (20, 40, 80, 160))
