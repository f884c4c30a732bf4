"""The drafter's side of a hand-off by flags, on a stream that is a list."""

from __future__ import annotations

import os
import queue
import socket
import time

import pytest
import torch

from services.common.pair.turns import NODES, Ask, asking_end
from services.drafter.handoff import flags as module
from services.drafter.handoff.flags import FlagHandoff


class Flags:
    """What was asked of the flags, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def await_published(self, number: int) -> None:
        self.log.append(f"wait T={number}")

    def draft(self, number: int) -> None:
        self.log.append(f"D={number}")

    def release_drafter(self, number: int) -> None:
        self.log.append(f"release drafter {number}")


class Stream:
    """Has nothing left to do, or hangs."""

    def __init__(self) -> None:
        self.hangs = False

    def query(self) -> bool:
        return not self.hangs


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> Flags:
    made = Flags()
    monkeypatch.setattr(module, "FlagPair", lambda flags, generation: made)
    return made


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: made)
    return made


def flag_handoff(monkeypatch: pytest.MonkeyPatch, mps: bool) -> tuple[FlagHandoff, torch.Tensor]:
    monkeypatch.setattr(module, "mps_serves", lambda: mps)
    memory = torch.zeros(16, dtype=torch.int64)
    return FlagHandoff(memory, 3), memory


@pytest.mark.usefixtures("stream")
def test_by_time_slices_the_stream_waits(flags: Flags, monkeypatch: pytest.MonkeyPatch) -> None:
    handoff, _ = flag_handoff(monkeypatch, mps=False)
    handoff.hold(torch.tensor([7, 3]), 8)
    handoff.begin(7, 8, False)
    handoff.end(7)
    assert flags.log == ["wait T=7", "D=7"]


@pytest.mark.usefixtures("stream")
def test_under_mps_the_stream_waits_before_a_draft_of_many_sequences(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the draft does not: its gate would hold it for so long, for the flag never comes here."""
    monkeypatch.setattr(module, "_RELEASE_S", 30.0)
    handoff, _ = flag_handoff(monkeypatch, mps=True)
    start = time.monotonic()
    handoff.hold(torch.tensor([7, 3]), 16)
    assert time.monotonic() - start < 15.0
    handoff.begin(7, 16, False)
    handoff.end(7)
    assert flags.log == ["wait T=7", "D=7"]


@pytest.mark.usefixtures("stream")
def test_under_mps_a_draft_of_few_sequences_waits_itself(flags: Flags, monkeypatch: pytest.MonkeyPatch) -> None:
    handoff, memory = flag_handoff(monkeypatch, mps=True)
    memory[2 * 3] = 7
    handoff.hold(torch.tensor([7, 3]), 8)
    handoff.begin(7, 8, False)
    handoff.end(7)
    assert flags.log == ["D=7"]


@pytest.mark.usefixtures("stream")
def test_behind_prompts_the_stream_waits_before_a_draft_of_few_sequences(
    flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack of prompts took a tenth longer beside a kernel that polled."""
    handoff, _ = flag_handoff(monkeypatch, mps=True)
    handoff.begin(7, 8, True)
    handoff.begin(8, 8, False)
    assert flags.log == ["wait T=7"]


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("mps", [False, True])
def test_letting_go_releases_the_stream(flags: Flags, mps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes no flag of its own: a target may have released itself by a higher number."""
    handoff, _ = flag_handoff(monkeypatch, mps)
    handoff.begin(9, 8, False)
    flags.log.clear()
    handoff.close()
    assert flags.log == ["release drafter 9"]


def test_a_stream_that_hangs_ends_the_process(flags: Flags, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    handoff, _ = flag_handoff(monkeypatch, mps=True)
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        stream.hangs = False

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(module, "_RELEASE_S", 0.01)
    stream.hangs = True
    handoff.close()
    assert codes == [70]
    assert flags.log


@pytest.mark.usefixtures("stream")
def test_rounds_come_over_the_connection_and_are_not_answered(flags: Flags, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads answers there: they would fill the connection, and the drafter would wait for room."""
    monkeypatch.setattr(module, "mps_serves", lambda: False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: flags.log.append("device"))
    here, there = socket.socketpair()
    handoff, asked = FlagHandoff(torch.zeros(16, dtype=torch.int64), 3, there), queue.Queue[tuple[int, ...]]()
    with here:
        handoff.serve(lambda *ask: asked.put(ask), lambda seconds: None, -1)
        turns, wanted = asking_end(here), Ask(3, 7, 8, 16, 5, NODES)
        turns.send(wanted)
        assert asked.get(timeout=10.0) == tuple(wanted)
        with pytest.raises(TimeoutError):
            turns.receive(0.05)
        handoff.close()
        assert turns.receive(1.0) is None
    assert flags.log == ["device", "release drafter 0", "release drafter 0"]
