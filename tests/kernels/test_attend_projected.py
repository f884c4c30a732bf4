"""From a product to attention's end: a kernel that serves a round takes it, and gets the product once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.span_attention import projected
from services.common.kernels.span_attention.alone import kernel as alone

QKV_FD = torch.ones(2, 2)


def attended(monkeypatch: pytest.MonkeyPatch, serves: bool, weight: object = QKV_FD) -> list[str]:
    """Which steps were taken for rows that are said to be a GPU's."""
    steps: list[str] = []

    def product(*_: object) -> torch.Tensor:
        steps.append("product")
        return torch.zeros(1, 2)

    monkeypatch.setattr(projected, "linear", product)
    monkeypatch.setattr(alone, "serves", lambda *_: serves)
    monkeypatch.setattr(alone, "attend_mixed", lambda *_: steps.append("alone"))
    normed: Any = SimpleNamespace(rows_TD=SimpleNamespace(is_cuda=True), squares_T=None, width=2)
    rotation: Any = SimpleNamespace(cos_T1D=None, sin_T1D=None)
    span: Any = SimpleNamespace(slots_T=None)
    nothing: Any = None
    projected.attend_projected(normed, cast(Any, weight), nothing, rotation, nothing, span, 1e-6)
    return steps


def test_one_kernel_takes_a_round_behind_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attended(monkeypatch, serves=True) == ["product", "alone"]


def test_nothing_is_done_where_none_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attended(monkeypatch, serves=False) == []


def test_products_by_weights_of_eight_bits_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = Int8Weight(torch.zeros(2, 2, dtype=torch.int8), torch.ones(2), torch.bfloat16)
    assert attended(monkeypatch, True, weight) == []
