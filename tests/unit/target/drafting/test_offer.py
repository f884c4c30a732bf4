"""What an offer of a GPU's memory leaves for the drafter that takes it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.pair import attach
from services.common.pair.arena import MemfdArena
from services.common.pair.handoff import HandoffMode
from services.common.pair.side_socket import fetch_descriptors
from services.common.pair.turns import Ask, answering_end, asking_end
from services.drafter.mapping import _connected
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


@pytest.fixture
def offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaOffers]:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    arena = GpuArena.create(attach.control_tensors(SHAPE))
    unlike: Any = arena
    made = CudaOffers(unlike, replace(TERMS, handoff=HandoffMode.FLAGS), tmp_path / "side")
    yield made
    made.close()
    arena.close()


def test_a_side_socket_beside_it_carries_turns(offers: CudaOffers) -> None:
    """It brings no descriptor. A claim with another nonce gets no connection."""
    with offers.offer(3) as offer:
        with pytest.raises(PermissionError):
            fetch_descriptors(offer.side_socket, 3, offer.nonce ^ 1, 0)
        assert offers.take_connection() is None
        fetched = fetch_descriptors(offer.side_socket, 3, offer.nonce, 0)
        taken = offers.take_connection()
        assert taken is not None
        with fetched.connection, taken:
            asking_end(taken).send(Ask(3, 1, 1, 8, 1))
            assert answering_end(fetched.connection).receive(5.0) == Ask(3, 1, 1, 8, 1)


def test_only_its_user_may_reach_the_side_socket(offers: CudaOffers) -> None:
    with offers.offer(3) as offer:
        path = Path(offer.side_socket)
        assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    offers.close()
    assert not path.exists()


def test_each_drafter_has_a_connection_of_its_own(offers: CudaOffers) -> None:
    """One that is gone hears no more, and one that claimed and died before its attachment leaves none."""
    (old, gone), (new, theirs) = (claimed(offers, generation) for generation in (3, 4))
    gone.close()
    assert not asking_end(old).send(Ask(3, 1, 1, 8, 1))
    assert asking_end(new).send(Ask(4, 1, 1, 8, 1))
    assert answering_end(theirs).receive(5.0) == Ask(4, 1, 1, 8, 1)
    with offers.offer(5) as offer:
        early = _connected(offer)
        assert early is not None
        early.close()
        assert offers.take_connection() is None


def claimed(offers: CudaOffers, generation: int) -> tuple[socket.socket, socket.socket]:
    """Both ends of what a drafter keeps of an offer."""
    with offers.offer(generation) as offer:
        theirs = _connected(offer)
        ours = offers.take_connection()
        assert ours is not None and theirs is not None
        return ours, theirs


@pytest.mark.parametrize("out_of_reach", ["/nowhere/arena-0.sock", ""])
def test_a_drafter_that_does_not_reach_it_has_no_connection(offers: CudaOffers, out_of_reach: str) -> None:
    """Containers may share a GPU and no folder. The arena is mapped all the same, and Pace asks."""
    with offers.offer(3) as offer:
        assert _connected(replace(offer, side_socket=out_of_reach)) is None
        assert _connected(replace(offer, nonce=offer.nonce ^ 1)) is None
        assert _connected(replace(offer, handoff=HandoffMode.HOST)) is None
        assert offers.take_connection() is None


def test_where_no_socket_can_be_made_the_memory_is_offered_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path may be too long for one, and a folder may not be writable."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    arena = GpuArena.create(attach.control_tensors(SHAPE))
    unlike: Any = arena
    for folder in (None, tmp_path / ("x" * 200)):
        without = CudaOffers(unlike, TERMS, folder)
        with without.offer(3) as offer:
            assert (offer.side_socket, without.take_connection()) == ("", None)
        without.close()
    arena.close()
