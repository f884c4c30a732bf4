"""The target's side of a hand-off by flags, on a stream that is a list."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import torch

from services.common.pair.flag_wait import FlagWait
from services.common.pair.turns import BEHIND_PROMPTS, DRAWN, Ask, answering_end, asking_end
from services.target.core.plan import Plan
from services.target.drafting.handoff import flags as module
from services.target.drafting.handoff.flags import FlagDrafts, FlagHandoff
from tests.support.fakes_attachment import FakeAttachment


@dataclass
class Stream:
    """What was enqueued; a verify that waits for drafts is done once they, or a release, have come."""

    log: list[str] = field(default_factory=list)
    drafted: int = 0

    def publish(self, number: int) -> None:
        self.log.append(f"T={number}")

    def await_drafted(self, number: int) -> None:
        self.log.append(f"wait D={number}")

    def release_target(self, number: int) -> None:
        self.log.append(f"release {number}")
        self.drafted = max(self.drafted, number)


@dataclass
class Mark:
    """The end of a verify that waited for `number`."""

    stream: Stream
    number: int

    def query(self) -> bool:
        return self.stream.drafted >= self.number

    def synchronize(self) -> None:
        assert self.query(), "a host that waits here waits for good"


def plan(number: int, bucket: int = 1) -> Plan:
    return Plan(number, 4, (0,), bucket, (), (), (), ())


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def attachment(monkeypatch: pytest.MonkeyPatch) -> FakeAttachment:
    monkeypatch.setattr(module, "_FIRST_ROUND_S", 0.02)
    monkeypatch.setattr(module, "FlagPair", lambda flags, generation: Stream())
    return FakeAttachment()


@pytest.fixture
def flags(attachment: FakeAttachment, stream: Stream) -> FlagDrafts:
    return FlagDrafts(attachment, stream, gate=None)


@pytest.fixture
def gated(attachment: FakeAttachment, stream: Stream) -> FlagDrafts:
    return FlagDrafts(attachment, stream, FlagWait(torch.zeros(16, dtype=torch.int32), "drafted", 1.0))


def launch(flags: FlagDrafts, stream: Stream, number: int, speculative: bool = True) -> Mark:
    if speculative:
        stream.log.append("copies")
        flags.publish(plan(number))
        flags.hold(plan(number))
    stream.log.append("verify")
    return Mark(stream, number if speculative else 0)


def test_rounds_are_chained_on_the_stream(flags: FlagDrafts, stream: Stream) -> None:
    first, second = launch(flags, stream, 7), launch(flags, stream, 8)
    assert stream.log == ["copies", "T=7", "wait D=7", "verify", "copies", "T=8", "wait D=8", "verify"]
    stream.drafted = 8
    flags.watch(plan(7), first)
    flags.watch(plan(8), second)
    assert not [entry for entry in stream.log if entry.startswith("release")]


def test_with_a_gate_the_step_waits_and_the_host_still_watches(
    gated: FlagDrafts, attachment: FakeAttachment, stream: Stream
) -> None:
    done = launch(gated, stream, 1)
    assert stream.log == ["copies", "T=1", "verify"]
    attachment.speculating = False
    gated.watch(plan(1), done)
    assert stream.log[-1] == "release 1"


def test_with_a_gate_the_stream_still_waits_before_steps_of_many_sequences(
    gated: FlagDrafts, attachment: FakeAttachment, stream: Stream
) -> None:
    gated.publish(plan(1, bucket=16))
    gated.hold(plan(1, bucket=16))
    assert stream.log == ["T=1", "wait D=1"]
    attachment.speculating = False
    gated.watch(plan(1, bucket=16), Mark(stream, 1))
    assert stream.log[-1] == "release 1"


def test_with_a_gate_the_stream_waits_for_drafts_that_are_copied_to_the_host(
    gated: FlagDrafts, attachment: FakeAttachment, stream: Stream
) -> None:
    gated.publish(plan(1))
    gated.hold(plan(1), copied=True)
    assert stream.log == ["T=1", "wait D=1"]
    attachment.speculating = False
    gated.watch(plan(1), Mark(stream, 1))
    assert stream.log[-1] == "release 1"


def test_a_late_drafter_is_released_from_and_quarantined(
    flags: FlagDrafts, attachment: FakeAttachment, stream: Stream
) -> None:
    flags.watch(plan(7), launch(flags, stream, 7))
    assert "release 7" in stream.log
    assert not attachment.speculating


def test_a_round_behind_a_late_one_is_released_at_once(flags: FlagDrafts, stream: Stream) -> None:
    first, second = launch(flags, stream, 7), launch(flags, stream, 8)
    flags.watch(plan(7), first)
    assert "release 8" not in stream.log
    flags.watch(plan(8), second)
    assert "release 8" in stream.log


def test_a_lost_drafter_is_released_from_at_once(flags: FlagDrafts, attachment: FakeAttachment, stream: Stream) -> None:
    attachment.watchdog_s, attachment.speculating = 1e9, False
    flags.watch(plan(7), launch(flags, stream, 7))
    assert "release 7" in stream.log


def test_the_drafter_is_told_of_prompts_before_its_round(flags: FlagDrafts, attachment: FakeAttachment) -> None:
    told: list[bool] = []
    attachment.stream = SimpleNamespace(send=lambda ask: told.append(ask.bits == BEHIND_PROMPTS))
    flags.ask(plan(7))
    flags.ask(replace(plan(8), behind_prompts=True))
    assert told == [False, True]


def test_the_drafter_is_told_of_rounds_that_draw(flags: FlagDrafts, attachment: FakeAttachment) -> None:
    told: list[int] = []
    attachment.stream = SimpleNamespace(send=lambda ask: told.append(ask.bits))
    flags.ask(plan(7))
    flags.ask(replace(plan(8), drawn=True, behind_prompts=True))
    assert told == [0, DRAWN | BEHIND_PROMPTS]


def test_a_plain_round_waits_for_no_drafter(flags: FlagDrafts, stream: Stream) -> None:
    flags.watch(plan(7), launch(flags, stream, 7, speculative=False))
    assert stream.log == ["verify"]


def test_a_connection_carries_what_the_stream_would(attachment: FakeAttachment, stream: Stream) -> None:
    """The attachment has no stream that could be asked, and no answer is waited for."""
    here, there = socket.socketpair()
    with here, there:
        drafts = FlagDrafts(attachment, stream, None, asking_end(here))
        drafts.ask(replace(plan(7, bucket=2), behind_prompts=True))
        assert answering_end(there).receive(1.0) == Ask(1, 7, 2, 4, 1, BEHIND_PROMPTS)
        assert drafts.wait(plan(7))


def test_a_drafter_that_was_killed_is_lost_at_the_next_ask_and_its_round_released(
    attachment: FakeAttachment, stream: Stream
) -> None:
    """It read the round before and died over it: the kernel ends its connection."""
    attachment.watchdog_s = 1e9
    here, there = socket.socketpair()
    with here:
        drafts = FlagDrafts(attachment, stream, None, asking_end(here))
        first = launch(drafts, stream, 7)
        drafts.ask(plan(7))
        assert answering_end(there).receive(1.0) is not None
        there.close()
        drafts.ask(plan(8))
        assert (drafts.wait(plan(8)), attachment.fallback) == (False, "lost")
        drafts.watch(plan(7), first)
        assert stream.log[-1] == "release 7"


def test_a_drafter_that_does_not_read_holds_nobody(attachment: FakeAttachment) -> None:
    """As many rounds as fill the connection are asked for at once; the next one loses it."""
    here, there = socket.socketpair()
    with there:
        drafts = handed(attachment, here)
        asked = 0
        while drafts.speculating and asked < 100_000:
            drafts.ask(plan(asked := asked + 1))
        assert attachment.fallback == "lost"


def handed(attachment: FakeAttachment, connection: socket.socket | None) -> FlagDrafts:
    """What a hand-off makes of an attachment, without a GPU."""
    handoff = FlagHandoff.__new__(FlagHandoff)
    handoff.gate, handoff._flags = None, torch.zeros(16, dtype=torch.int64)
    return handoff.open(attachment, lambda: connection)


def test_the_connection_ends_with_its_attachment(attachment: FakeAttachment, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Callable[[], object]] = []
    monkeypatch.setattr(attachment, "at_end", ends.append)
    here, there = socket.socketpair()
    with there:
        drafts = handed(attachment, here)
        ends.pop()()
        assert answering_end(there).receive(1.0) is None
        drafts.ask(plan(7))
        assert attachment.fallback == "lost"


def test_a_drafter_elsewhere_is_asked_over_its_stream_and_the_log_says_so(
    attachment: FakeAttachment, caplog: pytest.LogCaptureFixture
) -> None:
    """Another container of the same GPU may not see the side socket's folder."""
    asked: list[Ask] = []
    attachment.stream = SimpleNamespace(send=asked.append, drop_replies=lambda: None)
    with caplog.at_level("INFO"):
        drafts = handed(attachment, None)
    drafts.ask(plan(7))
    assert drafts.wait(plan(7)) and [ask.round for ask in asked] == [7]
    assert "side socket" in caplog.text
