"""Synthetic acceptance: drafts are accepted at the rates that were asked for, by seed and position alone."""

import pytest
import torch
from torch import Tensor

from services.common.device.noise import PURPOSE_SYNTHETIC, PURPOSE_TOKEN, uniform
from services.common.kernels.accept import SlotState
from services.common.kernels.force_acceptance import LIFT, force_acceptance

SLOTS, POSITIONS, VOCAB = 4, 5000, 8
RATES_K = torch.tensor([1.0, 0.7, 0.25, 0.0])


def slots(seeds: list[int], length: int) -> SlotState:
    state = SlotState.allocate(len(seeds), VOCAB, 8)
    state.seed_S[: len(seeds)] = torch.tensor(seeds)
    state.length_S.fill_(length)
    return state


def raised(rows_B: Tensor, state: SlotState) -> Tensor:
    """Which drafts [B, K] became the best of their rows; the others became impossible, and no other score moved."""
    logits_BWV, drafts_BK = torch.zeros(len(rows_B), 5, VOCAB), torch.full((len(rows_B), 4), 3)
    force_acceptance(logits_BWV, drafts_BK, RATES_K, rows_B, state)
    assert (logits_BWV[:, :4, 3].abs() == LIFT).all()
    assert logits_BWV.count_nonzero() == drafts_BK.numel()
    return logits_BWV[:, :4, 3] == LIFT


def test_rates_are_unconditional_by_position_in_the_draft() -> None:
    rows_B, state = torch.arange(SLOTS, dtype=torch.int32), slots([*range(SLOTS)], 0)
    accepted_BK = torch.zeros(SLOTS, 4)
    for position in range(POSITIONS):
        state.length_S.fill_(position)
        raised_BK = raised(rows_B, state)
        assert torch.equal(raised_BK, raised_BK.cummin(1).values)
        accepted_BK += raised_BK
    assert accepted_BK / POSITIONS == pytest.approx(RATES_K.expand(SLOTS, 4), abs=0.03)


def test_a_draw_is_of_seed_and_position_whatever_the_row_slot_and_round() -> None:
    for position in range(50):
        state = slots([5, 6, 5], position)
        first_BK = raised(torch.tensor([0, 1, 2], dtype=torch.int32), state)
        again_BK = raised(torch.tensor([1, 2], dtype=torch.int32), state)
        assert torch.equal(first_BK[0], first_BK[2])
        assert torch.equal(again_BK, first_BK[1:])


def test_seeds_and_positions_draw_apart() -> None:
    """No correlation between seeds, between one position and the next, nor with the noise of tokens."""
    positions_P = torch.arange(POSITIONS)

    def drawn(seed: int, purpose: int) -> Tensor:
        return uniform(torch.full_like(positions_P, seed), positions_P, purpose)

    drawn_SP = torch.stack([drawn(seed, PURPOSE_SYNTHETIC) for seed in range(SLOTS)])
    assert 0.0 <= float(drawn_SP.min()) < 0.01
    assert 0.99 < float(drawn_SP.max()) < 1.0
    apart = torch.corrcoef(torch.cat((drawn_SP[:, 1:], drawn_SP[:, :-1], drawn(0, PURPOSE_TOKEN)[None, 1:])))
    assert float((apart - torch.eye(len(apart))).abs().max()) < 0.06
