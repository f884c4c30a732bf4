"""The last product of a row that is alone: what it is built for, where Triton serves, and what it is launched with."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.experts import kernel as experts
from services.common.kernels.experts.alone.kernel import serving
from services.common.kernels.experts.alone.source import LINES, SUB, shape_of

PROCESSOR_BYTES, KEPT_BYTES = 228 * 1024, 1024
"""Shared memory of a multiprocessor, and what the driver keeps of each CTA's."""


@pytest.mark.parametrize(("outputs", "depth"), [(2048, 512), (2048, 768), (2816, 704)])
def test_a_multiprocessor_has_two_at_least(outputs: int, depth: int) -> None:
    shape = shape_of(16, outputs, depth)
    assert shape is not None and shape.steps * SUB == depth and outputs % LINES == 0
    assert 2 * (shape.shared_bytes + KEPT_BYTES) <= PROCESSOR_BYTES


@pytest.mark.parametrize(("outputs", "depth"), [(2048, 1024), (2048, 520), (2040, 512)])
def test_others_go_through_triton(outputs: int, depth: int) -> None:
    assert shape_of(16, outputs, depth) is None


def test_without_a_gpu_triton_serves() -> None:
    row, weight = torch.zeros(1, 64, dtype=torch.bfloat16), torch.zeros(2, 64, 64, dtype=torch.bfloat16)
    assert serving(row, weight, 16) is None


@pytest.mark.parametrize(("rows", "placed", "cold", "served"), [
    (1, True, False, True), (2, True, False, False), (1, False, False, False), (1, True, True, False),
])  # fmt: skip
def test_one_row_whose_experts_are_all_on_the_device(
    rows: int, placed: bool, cold: bool, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = shape_of(16, 64, 64)
    monkeypatch.setattr(experts, "serving", lambda _x, _weight, tile: asked if tile == 16 else None)
    words = torch.zeros(2, 2, dtype=torch.int32)
    places = experts.Places(words.new_zeros(2, 16), words, words[0, :1], 2) if placed else None
    routes = experts.Routes(words.new_zeros(rows, 2), torch.zeros(rows, 2), 2, places)
    stack = experts.ExpertStack(torch.zeros(2, 128, 64), torch.zeros(2, 64, 64), words.long() if cold else None)
    assert (experts._alone(torch.zeros(rows, 64), stack, routes) is not None) == served
