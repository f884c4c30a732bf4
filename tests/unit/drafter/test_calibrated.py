"""Confidences that are wrong are corrected by what texts say: trees become as good as a right drafter's."""

import pytest
import torch
from torch import Tensor

from services.common.model.drafters.nodes import Candidates, choose_nodes
from services.drafter.arena_view import ArenaView
from services.drafter.proposers.build import build_proposer
from services.drafter.proposers.calibrated import CalibratedProposer, Calibration
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.drafter.settings import DrafterSettings
from tests.lossless.pairs import made_up_pair
from tests.support.fakes_arena import FakeArena

SEED, NODES, POSITIONS, CANDIDATES = 20261130, 16, 6, 4
ROUNDS = 6
"""Of a request."""
SURE = torch.tensor([0.95, 0.5, 0.4, 0.3, 0.3, 0.3])
"""How likely one of a position's candidates is right."""
SHARES = torch.tensor([0.8, 0.1, 0.06, 0.04])
WRONG = {"too sure": SURE**0.01, "too doubtful": SURE * 0.2, "right": SURE}


def found(rows: int, sure_K: Tensor) -> Candidates:
    """Candidates of which the first is the likeliest; ids tell position and rank."""
    ids_KC = torch.arange(POSITIONS)[:, None] * 10 + torch.arange(CANDIDATES) + 100
    scores_KC = (sure_K[:, None] * SHARES).log()
    return Candidates(ids_KC.expand(rows, -1, -1), scores_KC[None, :, None].expand(rows, -1, -1, -1))


class Sure(CheckpointProposer):
    """A checkpoint that says always the same."""

    def __init__(self, sure_K: Tensor) -> None:
        self.sure_K = sure_K

    def ranked(self, shared: ArenaView, rows_B: Tensor, width: int) -> Candidates:
        return found(len(rows_B), self.sure_K)


def draw(generator: torch.Generator) -> list[int]:
    """What a text says behind an anchor: at each position one of the candidates as likely as they are, or another."""
    text = []
    for position in range(POSITIONS):
        chances = torch.cat((SURE[position] * SHARES, 1.0 - SURE[position : position + 1]))
        rank = int(torch.multinomial(chances, 1, generator=generator))
        text.append(100 + 10 * position + rank if rank < CANDIDATES else 99)
        if rank == CANDIDATES:
            break
    return text


@pytest.mark.parametrize("wrong", WRONG)
def test_trees_become_those_of_a_drafter_that_is_right(wrong: str, fake: FakeArena) -> None:
    print(f"seed {SEED}")
    generator, rows_B = torch.Generator().manual_seed(SEED), torch.tensor([0, 1], dtype=torch.int32)
    proposer, view = CalibratedProposer(Sure(WRONG[wrong])), ArenaView.of(fake.arena, 16)
    for epoch in range(1, 101):
        texts = {0: [1], 1: [2]}
        for _ in range(ROUNDS):
            for slot, text in texts.items():
                fake.put(slot, text, epoch)
            tokens_BK, parents_BK = proposer.nodes(view, rows_B, NODES)
            texts = {slot: text + draw(generator) for slot, text in texts.items()}
    best, naive = (worth(choose_nodes(found(1, sure_K), NODES - 1)) for sure_K in (SURE, WRONG[wrong]))
    print(best, naive, worth((tokens_BK, parents_BK)))
    assert worth((tokens_BK, parents_BK)) > 0.995 * best
    assert naive < 0.98 * best or wrong == "right"


def worth(tree: tuple[Tensor, Tensor]) -> float:
    """How many nodes of the first tree a text should follow."""
    reached = [(0, 1.0)]
    for token, parent in zip(tree[0][0].tolist(), tree[1][0].tolist(), strict=True):
        depth, chance = reached[parent]
        reached.append((depth + 1, chance * float(SURE[depth] * SHARES[token % 10])))
    return sum(chance for _, chance in reached[1:])


def scores(proposer: CalibratedProposer, view: ArenaView) -> Tensor:
    ranked = proposer.ranked(view, torch.tensor([0], dtype=torch.int32), NODES)
    assert ranked is not None
    return ranked.scores_BKPC


def test_what_another_request_says_in_a_slot_is_not_told(fake: FakeArena) -> None:
    """Nor is a text that has not moved."""
    proposer, view = CalibratedProposer(Sure(SURE * 0.3)), ArenaView.of(fake.arena, 16)
    doubtful = found(1, SURE * 0.3).scores_BKPC
    for epoch in range(1, 20):
        fake.put(0, [1] * epoch, epoch)
        for _ in range(2):
            assert torch.equal(scores(proposer, view), doubtful)
    fake.put(0, [1] * 19 + [100], 19)
    assert (scores(proposer, view) > doubtful).any()


def test_only_positions_that_a_text_reached_are_told() -> None:
    calibration = Calibration()
    for _ in range(50):
        calibration.learn(0, 0.5, right=True)
        calibration.learn(1, 0.5, right=False)
    first, second, third = calibration.corrections(3)
    assert first > 0.4 > 0.0 > second
    assert third == 0.0


def test_a_setting_makes_it_and_a_gpu_refuses_it() -> None:
    model = str(made_up_pair().drafter)
    built = build_proposer(DrafterSettings(model=model, calibrated=True))
    assert isinstance(built, CalibratedProposer)
    assert not isinstance(build_proposer(DrafterSettings(model=model)), CalibratedProposer)
    with pytest.raises(ValueError, match="calibrated needs a CPU"):
        DrafterSettings(model=model, calibrated=True, device="cuda")
