"""The target's side of a hand-off by flags, on a stream that is a list."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from services.common.pair.arena import MemfdArena
from services.common.pair.gate import Gate
from services.target.core.plan import Plan
from services.target.drafting import handoff as module
from services.target.drafting.handoff import FlagHandoff, HostHandoff, make_handoff


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


@dataclass
class Drafter:
    """The attachment."""

    watchdog_s: float = 0.01
    speculating: bool = True
    direct: bool = False

    def give_up(self) -> None:
        self.speculating = False


def plan(number: int, bucket: int = 1) -> Plan:
    return Plan(number, 4, (0,), bucket, (), (), (), ())


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def flags(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> FlagHandoff:
    monkeypatch.setattr(module, "_FIRST_ROUND_S", 0.02)
    return FlagHandoff(lambda generation: stream)


def attached(flags: FlagHandoff) -> Drafter:
    drafter = Drafter()
    flags.join(1, drafter)
    flags.set_generation(1)
    return drafter


def launch(flags: FlagHandoff, stream: Stream, number: int, speculative: bool = True) -> Mark:
    if speculative:
        stream.log.append("copies")
        flags.published(plan(number))
        flags.before_verify(plan(number))
    stream.log.append("verify")
    return Mark(stream, number if speculative else 0)


def test_rounds_are_chained_on_the_stream(flags: FlagHandoff, stream: Stream) -> None:
    attached(flags)
    first, second = launch(flags, stream, 7), launch(flags, stream, 8)
    assert stream.log == ["copies", "T=7", "wait D=7", "verify", "copies", "T=8", "wait D=8", "verify"]
    stream.drafted = 8
    flags.wait(plan(7), first)
    flags.wait(plan(8), second)
    assert not [entry for entry in stream.log if entry.startswith("release")]


def test_with_a_gate_the_step_waits_and_the_host_still_watches(stream: Stream) -> None:
    flags = FlagHandoff(lambda generation: stream, Gate(torch.zeros(16, dtype=torch.int32), "drafted", 1.0))
    drafter = attached(flags)
    done = launch(flags, stream, 1)
    assert stream.log == ["copies", "T=1", "verify"]
    drafter.speculating = False
    flags.wait(plan(1), done)
    assert stream.log[-1] == "release 1"


def test_with_a_gate_the_stream_still_waits_before_steps_of_many_sequences(stream: Stream) -> None:
    flags = FlagHandoff(lambda generation: stream, Gate(torch.zeros(16, dtype=torch.int32), "drafted", 1.0))
    drafter = attached(flags)
    flags.published(plan(1, bucket=16))
    flags.before_verify(plan(1, bucket=16))
    assert stream.log == ["T=1", "wait D=1"]
    drafter.speculating = False
    flags.wait(plan(1, bucket=16), Mark(stream, 1))
    assert stream.log[-1] == "release 1"


def test_a_late_drafter_is_released_from_and_quarantined(flags: FlagHandoff, stream: Stream) -> None:
    drafter = attached(flags)
    flags.wait(plan(7), launch(flags, stream, 7))
    assert "release 7" in stream.log
    assert not drafter.speculating


def test_a_round_behind_a_late_one_is_released_at_once(flags: FlagHandoff, stream: Stream) -> None:
    attached(flags)
    first, second = launch(flags, stream, 7), launch(flags, stream, 8)
    flags.wait(plan(7), first)
    assert "release 8" not in stream.log
    flags.wait(plan(8), second)
    assert "release 8" in stream.log


def test_a_lost_drafter_is_released_from_at_once(flags: FlagHandoff, stream: Stream) -> None:
    drafter = attached(flags)
    drafter.watchdog_s, drafter.speculating = 1e9, False
    flags.wait(plan(7), launch(flags, stream, 7))
    assert "release 7" in stream.log


def test_a_plain_round_waits_for_no_drafter(flags: FlagHandoff, stream: Stream) -> None:
    attached(flags)
    flags.wait(plan(7), launch(flags, stream, 7, speculative=False))
    assert stream.log == ["verify"]


def test_without_an_attachment_no_flag_is_touched(flags: FlagHandoff, stream: Stream) -> None:
    attached(flags)
    flags.set_generation(0)
    mark = launch(flags, stream, 8)
    assert stream.log == ["copies", "verify"]
    stream.drafted = 8
    flags.wait(plan(8), mark)


def test_a_cpu_gets_the_side_socket_unless_host_order_is_asked_for() -> None:
    arena = MemfdArena.create({"flags": ((16,), torch.int64)})
    made = make_handoff("auto", arena, torch.device("cpu"), 0.25)
    assert isinstance(made, HostHandoff)
    assert (made.wanted, made.mode, made.look_ahead) == ("socket", "socket", 0)
    assert make_handoff("host", arena, torch.device("cpu"), 0.25).wanted == "host"


def test_a_drafter_that_keeps_no_connection_shows_in_the_mode() -> None:
    made = HostHandoff(torch.device("cpu"), "socket")
    made.join(1, Drafter(direct=False))
    assert (made.wanted, made.mode) == ("socket", "host")
    made.join(2, Drafter(direct=True))
    assert made.mode == "socket"
