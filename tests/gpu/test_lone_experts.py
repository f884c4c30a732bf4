"""Experts of a row that is alone: the kernel in CUDA C++ has the bits of Triton's, and of a row in company."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.experts import kernel as experts
from services.common.kernels.experts.alone.kernel import serving
from services.common.kernels.linear import Normed
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
TOP_K, EPS = 8, 1e-6


@pytest.mark.parametrize(("hidden", "inner", "count"), [(2048, 512, 64), (2048, 768, 32), (2816, 704, 16)])
@pytest.mark.parametrize("followed", [False, True])
def test_parts_have_the_bits_of_triton(
    hidden: int, inner: int, count: int, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, behind = torch.bfloat16, count + followed
    gate_up = randn(behind, 2 * inner, hidden, seed=3, dtype=kind) * 0.02
    down = randn(behind, hidden, inner, seed=4, dtype=kind) * 0.02
    stack = experts.ExpertStack(gate_up[:count], down[:count], followed=followed)
    x_TD = randn(4, hidden, seed=5, dtype=kind)
    squares_T = (x_TD.double().square().sum(1) * 2.0**24).round().long()
    assert serving(x_TD, stack.down_EDF, experts.FEW), "the kernel serves such experts"

    def parts(rows: slice) -> torch.Tensor:
        gates_TF = randn(4, count, seed=9, dtype=kind)[rows]
        routes = experts.route(gates_TF, None, count, TOP_K, True, followed=followed)
        return experts.multiply_experts(Normed(x_TD[rows], squares_T[rows]), routes, stack, EPS)

    together = parts(slice(0, 4))
    for row in range(4):
        assert torch.equal(parts(slice(row, row + 1))[0], together[row])
    monkeypatch.setattr(experts, "serving", lambda *_: None)
    assert torch.equal(parts(slice(1, 2))[0], together[1])
    assert torch.isfinite(together).all() and together.device.type == DEVICE
