"""Embedding and head of a drafter: the target's own where it alone can write, else a copy that may be damaged."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.model import Target, load_target
from services.common.pair import attach
from services.common.pair.arena import Arena, MemfdArena
from services.target.drafting.shared_weights import DamagedWeightsError, SharedWeights
from tests.support.tiny_checkpoints import write_tiny


class OpenArena(MemfdArena):
    """As a GPU's: whoever maps it can write it."""

    @property
    def sealed(self) -> bool:
        return False


@pytest.fixture
def model(tmp_path: Path) -> Target:
    return load_target(write_tiny(tmp_path).target)


def arena_for(model: Target, kind: type[MemfdArena]) -> Arena:
    table = (tuple(model.embed_VD.shape), model.dtype)
    return kind.create({attach.EMBED: table, attach.LM_HEAD: table})


def drafters_sha256(arena: Arena, model: Target) -> str:
    """What a drafter finds."""
    head_VD: Tensor | None = None if model.spec.tied else arena[attach.LM_HEAD]
    return attach.embedding_sha256(arena[attach.EMBED], head_VD)


def test_a_sealed_arena_holds_the_one_copy(model: Target) -> None:
    arena = arena_for(model, MemfdArena)
    weights = SharedWeights(model, arena)
    assert model.embed_VD.data_ptr() == arena[attach.EMBED].data_ptr()
    assert weights.sha256 == drafters_sha256(arena, model)


def test_where_a_drafter_can_write_the_target_keeps_its_own(model: Target) -> None:
    before = model.embed_VD.clone()
    arena = arena_for(model, OpenArena)
    weights = SharedWeights(model, arena)
    arena[attach.EMBED].fill_(7)
    assert torch.equal(model.embed_VD, before)
    assert weights.sha256 != drafters_sha256(arena, model)
    weights.send_again()
    assert weights.sha256 == drafters_sha256(arena, model)


@pytest.mark.parametrize("kind", [MemfdArena, OpenArena])
def test_damage_of_the_targets_own_is_found(model: Target, kind: type[MemfdArena]) -> None:
    weights = SharedWeights(model, arena_for(model, kind))
    assert weights.sha256, "what was loaded is known"
    model.embed_VD[3, 0] += 1
    with pytest.raises(DamagedWeightsError):
        weights.send_again()
