"""Which hand-off an offer gets, and what each does with texts and drafts."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from services.common.pair.handoff import HandoffMode
from services.common.pair.wire import Text
from services.common.request.errors import PacelineError
from services.drafter.arena_view import ArenaView
from services.drafter.handoff.build import build_handoff
from services.drafter.handoff.host import HostHandoff
from services.drafter.handoff.socket import SocketHandoff
from services.drafter.handoff.texts import TextHandoff
from services.drafter.handoff.wire import WireHandoff
from services.drafter.mapping import Mapped
from tests.support.fakes_arena import FakeArena

ON_A_CPU = {HandoffMode.HOST: HostHandoff, HandoffMode.SOCKET: SocketHandoff, HandoffMode.WIRE: WireHandoff}


@pytest.mark.parametrize("mode", ON_A_CPU)
def test_with_shared_memory_texts_are_refused_in_every_mode(fake: FakeArena, mode: HandoffMode) -> None:
    mine, theirs = socket.socketpair()
    made = build_handoff(replace(fake.offer, handoff=mode), Mapped(fake.arena, 0, mine), ArenaView.of(fake.arena, 16))
    assert type(made) is ON_A_CPU[mode]
    with pytest.raises(PacelineError, match="shares memory"):
        made.learn([Text(0, 1, 0, [1])], [0])
    fake.put(1, [7, 8], epoch=5)
    fake.rows([1], 1)
    assert bool(made.drafts(1, 4)) == (mode is HandoffMode.WIRE), "only by wire does an answer carry drafts"
    made.close()
    mine.close()
    theirs.close()


def test_without_shared_memory_texts_are_learnt(fake: FakeArena) -> None:
    offer = replace(fake.offer, handoff=HandoffMode.WIRE, layout=None)
    shared = ArenaView.of(fake.arena, 16)
    made = build_handoff(offer, Mapped(fake.arena, 0), shared)
    assert isinstance(made, TextHandoff)
    made.learn([Text(2, 6, 0, [1, 2, 3])], [2])
    assert shared.history_SC[2, :3].tolist() == [1, 2, 3]
    assert int(shared.rows_B[0]) == 2
