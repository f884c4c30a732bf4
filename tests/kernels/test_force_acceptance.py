"""Synthetic acceptance: drafts are accepted at the rates that were asked for, by seed and position alone."""

import pytest
import torch
from torch import Tensor

from services.common.device.noise import PURPOSE_SYNTHETIC, PURPOSE_TOKEN, uniform
from services.common.kernels.accept import SlotState
from services.common.kernels.force_acceptance import LIFT, force_acceptance, force_nodes
from services.common.kernels.nodes import Nodes
from services.target.device.synthetic import SyntheticNodes

SLOTS, POSITIONS, VOCAB = 4, 5000, 8
AT_ONCE = 100
"""Positions of a seed that a call takes, each in a slot of its own."""
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


def everywhere() -> tuple[Tensor, SlotState, list[Tensor]]:
    """Rows, slots of every seed beside one another, and their lengths call by call, until each had every position."""
    state = slots([seed for seed in range(SLOTS) for _ in range(AT_ONCE)], 0)
    lengths = [torch.arange(first, first + AT_ONCE).repeat(SLOTS) for first in range(0, POSITIONS, AT_ONCE)]
    return torch.arange(SLOTS * AT_ONCE, dtype=torch.int32), state, lengths


def by_seed(right_BK: Tensor) -> Tensor:
    """How many rows of each seed are right, [SLOTS, K]."""
    return right_BK.view(SLOTS, AT_ONCE, -1).sum(1)


def test_rates_are_unconditional_by_position_in_the_draft() -> None:
    rows_B, state, lengths = everywhere()
    accepted_SK = torch.zeros(SLOTS, 4)
    for lengths_B in lengths:
        state.length_S[: len(lengths_B)] = lengths_B
        raised_BK = raised(rows_B, state)
        assert torch.equal(raised_BK, raised_BK.cummin(1).values)
        accepted_SK += by_seed(raised_BK)
    assert accepted_SK / POSITIONS == pytest.approx(RATES_K.expand(SLOTS, 4), abs=0.03)


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


PARENTS = [0, 0, 1, 1, 2]
"""Two children of the anchor, two of the first of them, and one of the second."""
SIBLINGS = (0.5,)


def grown(drafts: int, rows: int = SLOTS) -> Nodes:
    nodes = Nodes.allocate(rows, drafts + 1)
    nodes.parents_BK.copy_(torch.tensor(PARENTS).expand(rows, -1))
    nodes.depths_BW.copy_(torch.tensor([0, 1, 1, 2, 2, 2]).expand(rows, -1))
    return nodes


def test_nodes_are_right_by_depth_and_by_place_among_siblings() -> None:
    """At most one child of a node; a chain of first children has the rates of a chain."""
    (rows_B, state, lengths), drafts_K = everywhere(), torch.arange(1, 6)
    given = SyntheticNodes((0.6, 0.3), SIBLINGS, len(rows_B), torch.device("cpu"))
    nodes, right_SK = grown(5, len(rows_B)), torch.zeros(SLOTS, 5)
    drafts_BK = drafts_K.expand(len(rows_B), -1).contiguous()
    for lengths_B in lengths:
        state.length_S[: len(lengths_B)] = lengths_B
        logits_BWV = torch.zeros(len(rows_B), 6, VOCAB)
        given.apply(logits_BWV, drafts_BK, rows_B, state, nodes)
        raised_BK = logits_BWV[:, PARENTS, drafts_K] == LIFT
        assert not (raised_BK[:, 0] & raised_BK[:, 1]).any()
        assert not (raised_BK[:, 2] & raised_BK[:, 3]).any()
        right_SK += by_seed(raised_BK)
    expected = torch.tensor([0.6, 0.4 * 0.5, 0.5, 0.5 * 0.5, 0.5])
    assert right_SK / POSITIONS == pytest.approx(expected.expand(SLOTS, 5), abs=0.03)


def test_a_node_that_is_absent_or_too_deep_moves_nothing_or_is_wrong() -> None:
    state, nodes, drafts_BK = slots([1] * SLOTS, 3), grown(5), torch.tensor([[-1, 2, 3, 4, 5]] * SLOTS)
    logits_BWV = torch.zeros(SLOTS, 6, VOCAB)
    edges_NDR = torch.ones(1, 1, 2)
    force_nodes(logits_BWV, drafts_BK, edges_NDR, torch.arange(SLOTS, dtype=torch.int32), state, nodes)
    assert logits_BWV.count_nonzero() == SLOTS * 4
    assert (logits_BWV[:, [0, 1, 1, 2], [2, 3, 4, 5]] == -LIFT).all()
