"""The target's side of a hand-off by flags, on a stream that is a list."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import torch

from services.common.pair.flag_wait import FlagWait
from services.target.core.plan import Plan
from services.target.drafting.handoff import flags as module
from services.target.drafting.handoff.flags import FlagDrafts
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
    attachment.stream = SimpleNamespace(send=lambda ask, behind_prompts: told.append(behind_prompts))
    flags.ask(plan(7))
    flags.ask(replace(plan(8), behind_prompts=True))
    assert told == [False, True]


def test_a_plain_round_waits_for_no_drafter(flags: FlagDrafts, stream: Stream) -> None:
    flags.watch(plan(7), launch(flags, stream, 7, speculative=False))
    assert stream.log == ["verify"]
