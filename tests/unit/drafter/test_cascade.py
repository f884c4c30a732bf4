"""Each row's drafts are one proposer's: the text's where its end has occurred before, else the checkpoint's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.model import load_block
from services.drafter.arena_view import ArenaView
from services.drafter.proposers.build import build_proposer
from services.drafter.proposers.cascade import CascadeProposer
from services.drafter.proposers.checkpoint import CheckpointProposer
from services.drafter.proposers.ngram import NgramProposer
from services.drafter.settings import DrafterSettings
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Proposer, Rig, RigSettings
from tests.lossless.served import Served
from tests.unit.target.core.specs import SAMPLED, prompt, request

LEAST, WIDTH = 3, 5
LOOP, FRESH = (7, 8, 9, 10) * 6, prompt(3, 20)


@pytest.fixture(scope="module")
def view() -> Iterator[ArenaView]:
    """An arena behind the prompts of a text that repeats itself and of one that does not."""
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, RigSettings(width=WIDTH)) as rig:
        for name, ids in (("loop", LOOP), ("fresh", FRESH)):
            rig.submit(request(name, ids, 40))
        for _ in range(3):
            rig.step()
        rig.runner.publish()
        for slot, ids in enumerate((LOOP, FRESH)):
            length = rig.arena.tensor("slot.history_length")
            length[slot] = len(ids)  # what the target has said since then may repeat itself
        yield ArenaView.of(rig.arena, rig.shapes.block_size)


def learned() -> CheckpointProposer:
    return CheckpointProposer(load_block(made_up_pair().drafter, torch.float32), torch.float32)


def both(view: ArenaView) -> tuple[Tensor, Tensor, Tensor]:
    """Drafts of the cascade, the checkpoint and the lookup."""
    rows_B, drafts = torch.tensor([0, 1], dtype=torch.int32), []
    for proposer in (CascadeProposer(learned(), 16, LEAST), learned(), NgramProposer(4, LEAST)):
        proposer.check(view)
        drafts.append(proposer.propose(view, rows_B, WIDTH))
    return drafts[0], drafts[1], drafts[2]


@torch.inference_mode()
def test_a_row_that_repeats_itself_is_continued_and_another_drafted(view: ArenaView) -> None:
    cascade, checkpoint, found = both(view)
    assert found[0].tolist() == [7, 8, 9, 10]
    assert (found[1] == -1).all()
    assert cascade[0].tolist() == found[0].tolist() != checkpoint[0].tolist()
    assert cascade[1].tolist() == checkpoint[1].tolist()


@torch.inference_mode()
def test_a_repetition_is_a_path_beside_the_checkpoints_nodes(view: ArenaView) -> None:
    """A likely one is as deep as the tree has rows; a row that repeats nothing has the checkpoint's tree."""
    rows_B, wide = torch.tensor([0, 1], dtype=torch.int32), 12
    cascade, alone = CascadeProposer(learned(), 16, LEAST), learned()
    for proposer in (cascade, alone):
        proposer.check(view)
    tokens, parents = cascade.nodes(view, rows_B, wide)
    expected_tokens, expected_parents = alone.nodes(view, rows_B, wide)
    path = _longest_path(tokens[0].tolist(), parents[0].tolist())
    assert path == [7, 8, 9, 10, 7, 8, 9, 10, 7, 8, 9, 10][: len(path)]
    assert alone.max_draft == 7 < len(path)
    assert (tokens[1].tolist(), parents[1].tolist()) == (expected_tokens[1].tolist(), expected_parents[1].tolist())


def _longest_path(tokens: list[int], parents: list[int]) -> list[int]:
    paths: list[list[int]] = [[]]
    for token, parent in zip(tokens, parents, strict=True):
        paths.append([*paths[parent], token])
    return max(paths, key=len)


def test_the_setting_puts_a_lookup_before_a_checkpoint() -> None:
    settings = DrafterSettings(model=str(made_up_pair().drafter), lookup_from=2)
    assert isinstance(build_proposer(settings), CascadeProposer)
    assert (build_proposer(settings).kind, build_proposer(settings).max_draft) == ("dflash", 7)


def test_text_is_that_of_plain_decoding(tmp_path: Path) -> None:
    pair = made_up_pair()

    def propose(rig: Rig) -> Proposer:
        return Served(
            rig, CascadeProposer(CheckpointProposer(load_block(pair.drafter, torch.float64), torch.float64), 4, 2)
        )

    specs = [request("a", LOOP, 24), request("b", FRESH, 24, SAMPLED), request("c", (*FRESH, *FRESH), 24)]
    settings = RigSettings(dtype=torch.float64, width=WIDTH)
    with Rig(pair.target, pair.drafter, settings, propose) as rig:
        drafted = rig.run(specs)
    with Rig(pair.target, pair.drafter, RigSettings(dtype=torch.float64)) as rig:
        plain = rig.run(specs)
    assert [one.tokens for one in drafted] == [one.tokens for one in plain]
    assert sum(one.drafted for one in drafted) > 0
