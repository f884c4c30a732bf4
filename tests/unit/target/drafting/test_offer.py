"""What an offer of a GPU's memory leaves for the drafter that takes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from services.common.pair import attach
from services.common.pair.arena import MemfdArena
from services.target.drafting.offer import CudaOffers, OfferConstants
from tests.support.fakes_arena import SHAPE, SLOTS

TERMS = OfferConstants("", "", SLOTS, (1, 2, 4), (8,), 16, 1)


class GpuArena(MemfdArena):
    """An arena that is offered as one on a GPU."""

    handle = bytes(64)
    gpu_uuid = "GPU-0"


def test_what_steps_follow_is_blank_in_every_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter that is gone may have written anything there, and the next one's steps run before a publication."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    arena = GpuArena.create(attach.control_tensors(SHAPE))
    try:
        for name in attach.FOLLOWED:
            arena.tensor(name).fill_(2**31 - 1)
        unlike: Any = arena
        with CudaOffers(unlike, TERMS).offer(3) as offer:
            assert [int(arena.tensor(name).count_nonzero()) for name in attach.FOLLOWED] == [0] * len(attach.FOLLOWED)
            assert int(arena.tensor(attach.NONCE)[0]) == offer.nonce
    finally:
        arena.close()
