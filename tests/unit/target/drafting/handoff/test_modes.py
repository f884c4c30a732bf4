"""What each mode of a hand-off is: how rounds are asked for, where drafts come, and what it says of itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import torch

from services.common.pair import attach
from services.common.pair.arena import MemfdArena
from services.common.pair.handoff import HandoffMode
from services.common.pair.turns import answering_end
from services.target.core.plan import Plan
from services.target.drafting.handoff.build import build_handoff
from services.target.drafting.handoff.messages import MessageHandoff
from tests.support.fakes_arena import SHAPE
from tests.support.fakes_attachment import FakeAttachment

CPU = torch.device("cpu")


@pytest.fixture
def arena() -> Iterator[MemfdArena]:
    made = MemfdArena.create(attach.control_tensors(SHAPE))
    yield made
    made.close()


@pytest.mark.parametrize("mode", HandoffMode)
def test_every_mode_says_what_it_is(arena: MemfdArena, mode: HandoffMode) -> None:
    made = build_handoff(mode, arena, CPU, 1.0)
    by_flags = mode is HandoffMode.FLAGS
    assert made.wanted is mode
    assert made.in_use == ("flags_timeslice" if by_flags else mode)
    assert made.look_ahead == by_flags, "only flags let a round be launched before the one ahead of it is read"
    shared = arena.tensor(attach.TOKENS).data_ptr()
    assert (made.mailbox.tokens_SK.data_ptr() == shared) == (mode is not HandoffMode.WIRE)


def test_a_drafter_that_keeps_no_connection_shows_in_the_mode_in_use(arena: MemfdArena) -> None:
    made = MessageHandoff(HandoffMode.SOCKET, arena, CPU)
    made.open(FakeAttachment(), lambda: None)
    assert (made.wanted, made.in_use) == ("socket", "host")
    mine, theirs = socket.socketpair()
    with mine, theirs:
        made.open(FakeAttachment(), lambda: mine).ask(Plan(7, 4, (0,), 1, (), (), (), (), ()))
        ask = answering_end(theirs).receive(1.0)
        assert made.in_use == "socket"
        assert ask is not None and ask.round == 7, "asked over the connection"
