"""Synthetic acceptance: drafts are accepted at the rates that were asked for."""

import pytest
import torch

from services.common.kernels.force_acceptance import force_acceptance
from services.common.kernels.force_acceptance.reference import LIFT, draws

ROWS, CALLS, VOCAB = 4, 5000, 8


def test_rates_are_unconditional_by_position() -> None:
    rates, calls = torch.tensor([1.0, 0.7, 0.25, 0.0]), torch.zeros(ROWS, dtype=torch.int64)
    accepted = torch.zeros(ROWS, 4)
    for _ in range(CALLS):
        logits, drafts = torch.zeros(ROWS, 5, VOCAB), torch.full((ROWS, 4), 3)
        force_acceptance(logits, drafts, rates, calls)
        lifted = logits[:, :4, 3] == LIFT
        assert torch.equal(lifted, lifted.cummin(1).values)
        assert (logits[:, :4, 3].abs() == LIFT).all()
        assert not logits[:, 4].any()
        accepted += lifted
    assert accepted / CALLS == pytest.approx(rates.expand(ROWS, 4), abs=0.03)
    assert calls.tolist() == [CALLS] * ROWS


def test_rows_and_calls_draw_apart() -> None:
    """No correlation between rows, nor between one call and the next."""
    calls = torch.zeros(ROWS, dtype=torch.int64)
    drawn = torch.stack([draws(calls + call) for call in range(CALLS)], 1)
    assert 0.0 <= float(drawn.min()) < 0.01
    assert 0.99 < float(drawn.max()) < 1.0
    apart = torch.corrcoef(torch.cat((drawn[:, 1:], drawn[:, :-1]))) - torch.eye(2 * ROWS)
    assert float(apart.abs().max()) < 0.06
