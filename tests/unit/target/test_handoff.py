"""The target's side of a hand-off by flags, on a stream that is a list."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from services.common.arena import MemfdArena
from services.target import handoff as module
from services.target.handoff import FlagHandoff, HostHandoff, make_handoff
from services.target.plan import Plan


@dataclass
class Stream:
    """What was enqueued; a verify that waits for drafts is done once they, or a release, have come."""

    log: list[str] = field(default_factory=list)
    drafted: int = 0
    waits: int = 0

    def publish(self, number: int) -> None:
        self.log.append(f"T={number}")

    def await_drafted(self, number: int) -> None:
        self.log.append(f"wait D={number}")
        self.waits = number

    def release_target(self, number: int) -> None:
        self.log.append(f"release {number}")
        self.drafted = number

    def record(self) -> None:
        self.log.append("mark")

    def query(self) -> bool:
        return self.drafted >= self.waits

    def synchronize(self) -> None:
        assert self.query(), "a host that waits here waits for good"


@dataclass
class Drafter:
    """The attachment."""

    stream: Stream
    watchdog_s: float = 0.01
    speculating: bool = True
    direct: bool = False

    def ask_ahead(self, plan: Plan) -> None:
        self.stream.log.append(f"pace {plan.number + 1}")

    def give_up(self) -> None:
        self.speculating = False


def plan(number: int) -> Plan:
    return Plan(number, 4, (0,), 1, (), (), (), ())


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def flags(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> FlagHandoff:
    monkeypatch.setattr(module, "_FIRST_ROUND_S", 0.02)
    return FlagHandoff(lambda generation: stream, stream)


def attached(flags: FlagHandoff, stream: Stream) -> Drafter:
    drafter = Drafter(stream)
    flags.join(1, drafter)
    flags.set_generation(1)
    return drafter


def round_(flags: FlagHandoff, stream: Stream, number: int) -> None:
    if not flags.published_ahead(plan(number)):
        stream.log.append("copies")
    flags.published(plan(number))
    flags.before_verify(plan(number))
    stream.log.append("verify")
    flags.after_verify(plan(number), lambda: stream.log.append("copies"))
    flags.settle()


def test_a_verify_starts_the_next_draft_before_the_host_knows_its_results(flags: FlagHandoff, stream: Stream) -> None:
    attached(flags, stream)
    stream.drafted = 99
    round_(flags, stream, 7)
    round_(flags, stream, 8)
    first = ["copies", "T=7", "wait D=7", "verify", "mark", "pace 8", "copies", "T=8"]
    assert stream.log == [*first, "wait D=8", "verify", "mark", "pace 9", "copies", "T=9"]


def test_a_round_that_was_not_foreseen_is_published_again(flags: FlagHandoff, stream: Stream) -> None:
    attached(flags, stream)
    stream.drafted = 99
    round_(flags, stream, 7)
    stream.log.clear()
    round_(flags, stream, 9)
    assert stream.log[:3] == ["copies", "T=9", "wait D=9"]


def test_a_late_drafter_is_released_from_and_quarantined(flags: FlagHandoff, stream: Stream) -> None:
    drafter = attached(flags, stream)
    round_(flags, stream, 7)
    assert "release 7" in stream.log
    assert not drafter.speculating


def test_a_lost_drafter_is_released_from_at_once(flags: FlagHandoff, stream: Stream) -> None:
    drafter = attached(flags, stream)
    drafter.watchdog_s, drafter.speculating = 1e9, False
    round_(flags, stream, 7)
    assert "release 7" in stream.log
    assert "pace 8" not in stream.log, "nothing goes ahead for a drafter that is gone"


def test_an_old_generation_is_never_paced_again(flags: FlagHandoff, stream: Stream) -> None:
    attached(flags, stream)
    stream.drafted = 99
    round_(flags, stream, 7)
    flags.set_generation(0)
    stream.log.clear()
    round_(flags, stream, 8)
    assert stream.log == ["copies", "verify", "mark"]


def test_a_cpu_gets_the_side_socket_unless_host_order_is_asked_for(stream: Stream) -> None:
    arena = MemfdArena.create({"flags": ((16,), torch.int32)})
    made = make_handoff("auto", arena, torch.device("cpu"))
    assert isinstance(made, HostHandoff)
    assert (made.wanted, made.mode) == ("socket", "socket")
    assert not made.published_ahead(plan(1))
    assert make_handoff("host", arena, torch.device("cpu")).wanted == "host"


def test_a_drafter_that_keeps_no_connection_shows_in_the_mode(stream: Stream) -> None:
    made = HostHandoff(torch.device("cpu"), "socket")
    made.join(1, Drafter(stream, direct=False))
    assert (made.wanted, made.mode) == ("socket", "host")
    made.join(2, Drafter(stream, direct=True))
    assert made.mode == "socket"
