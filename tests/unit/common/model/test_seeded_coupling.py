"""Heads choose by noise that is made of seeds what they choose by noise that is held, also of a reduced vocabulary."""

from pathlib import Path

import pytest
import torch

from services.common.device.noise import gumbel
from services.common.kernels.argmax_token import Draws
from services.common.model.drafters import read_drafter_spec
from services.common.model.drafters.coupling import Coupling, SeededCoupling
from services.common.model.drafters.dflash2.selector import SelectorHead
from services.common.model.drafters.dspark.markov import MarkovHead
from services.common.model.drafters.heads import ArgmaxHead, DraftHead
from services.common.model.drafters.vocabulary import Vocabulary
from tests.support.tiny_checkpoints import write_tiny

VOCAB, ENTRIES, WIDTH, RANK, DRAFTS = 320, 96, 32, 8, 5
LENGTHS, SEEDS, HEATS = (7, 0, 900), (3, -5, 1 << 41), (0.8, 0.0, 1.7)


def _draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _couplings(sharpness: float) -> tuple[Coupling, Coupling]:
    rows, lengths, seeds, heats = torch.tensor([2, 0, 3]), torch.zeros(5).long(), torch.zeros(5).long(), torch.zeros(5)
    lengths[rows], seeds[rows], heats[rows] = torch.tensor(LENGTHS), torch.tensor(SEEDS), torch.tensor(HEATS)
    draws = Draws(rows, seeds, lengths, heats, sharpness)
    positions = torch.tensor(LENGTHS)[:, None] + torch.arange(1, DRAFTS + 1)
    hot = torch.tensor(HEATS) > 0
    scale = torch.where(hot, sharpness / torch.tensor(HEATS).clamp(min=1e-6), 1.0)
    return Coupling(gumbel(torch.tensor(SEEDS), positions, VOCAB), scale, hot.float()), SeededCoupling(draws)


@pytest.mark.parametrize("kind", ["argmax", "argmax of some", "selector", "few of a bias"])
def test_seeds_choose_as_noise_does(kind: str, tmp_path: Path) -> None:
    spec = read_drafter_spec(write_tiny(tmp_path, seed=1).drafter)
    entries = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(2))[:ENTRIES]
    vocabulary = Vocabulary(entries if kind == "argmax of some" else None)
    codes = _draw(VOCAB, RANK, seed=3), _draw(VOCAB, RANK, seed=4)
    head: DraftHead = ArgmaxHead(spec, vocabulary)
    if kind == "selector":
        head = SelectorHead(spec, *codes, _draw(RANK, WIDTH, seed=5), 16)
    elif kind == "few of a bias":
        head = MarkovHead(spec, *codes, vocabulary)
        head.narrow(16)
    table = _draw(ENTRIES if not vocabulary.whole else VOCAB, WIDTH, seed=6)
    hidden, anchors = 0.3 * _draw(3, DRAFTS, WIDTH, seed=7), torch.tensor([4, 5, 6])
    held, seeded = _couplings(head.sharpness)
    chosen = head.choose(hidden, table, anchors, seeded)
    assert torch.equal(chosen, head.choose(hidden, table, anchors, held))
    plain = head.choose(hidden, table, anchors, None)
    assert torch.equal(chosen[1], plain[1]) and not torch.equal(chosen, plain)
    if kind != "few of a bias":
        one, other = head.rank(hidden, table, anchors, seeded), head.rank(hidden, table, anchors, held)
        assert torch.equal(one.ids_BKC, other.ids_BKC)
        torch.testing.assert_close(one.scores_BKPC, other.scores_BKPC)
