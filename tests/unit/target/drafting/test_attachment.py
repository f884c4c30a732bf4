"""Attaching, pacing and quarantining, against a drafter that misbehaves on demand."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import torch

from services.common.pair import attach
from services.common.pair.arena import Layout, MemfdArena
from services.common.pair.attach import AttachOffer
from services.common.pair.handoff import HandoffMode
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.target.core.commands import Attach, Command, Detach
from services.target.core.drafts import Drafts
from services.target.core.plan import Plan
from services.target.drafting.attacher import Attacher, AttacherSettings, AttachState
from services.target.drafting.attachment import Attachment
from services.target.drafting.handoff import flags as flags_module
from services.target.drafting.handoff.flags import FlagHandoff
from services.target.drafting.handoff.messages import MessageHandoff
from services.target.drafting.handoff.pace import PaceStream
from services.target.drafting.handoff.protocol import AttachedDrafts, Handoff
from services.target.drafting.peer_pid import listener_pid
from services.target.drafting.shared_weights import DamagedWeightsError, SharedWeights
from tests.support.fakes_arena import SHAPE
from tests.support.fakes_drafter import Behaviour, FakeDrafter
from tests.support.told import told

WAIT_S = 30.0
ARENA = MemfdArena.create(attach.control_tensors(SHAPE))


class FakeOffers:
    """Offers of an arena that does not exist."""

    claimed_by = 0

    def take_connection(self) -> socket.socket | None:
        return None

    @contextlib.contextmanager
    def offer(self, generation: int) -> Iterator[AttachOffer]:
        yield AttachOffer(
            generation=generation,
            nonce=41,
            layout=Layout("memfd", (4096,), ()),
            embedding_sha256="",
            drafter_sha256="",
            slots=4,
            buckets=(1, 2, 4),
            widths=(4, 8),
            block_size=16,
        )


class NoFlags:
    """Flags that nobody waits for."""

    def publish(self, number: int) -> None: ...
    def await_drafted(self, number: int) -> None: ...
    def release_target(self, number: int) -> None: ...


class FakeWeights:
    """Counts how often they are sent; `damaged` are the target's own."""

    def __init__(self, damaged: bool = False) -> None:
        self.sent = 0
        self._damaged = damaged

    def send_again(self) -> None:
        if self._damaged:
            raise DamagedWeightsError("not what was loaded")
        self.sent += 1


class Bench:
    """An attacher over a fake drafter, and the commands it sent."""

    def __init__(self, folder: Path, watchdog_s: float = 20.0, behaviour: Behaviour | None = None,
        weights: FakeWeights | None = None, handoff: Handoff | None = None,
    ) -> None:  # fmt: skip
        self.drafter = FakeDrafter(folder, behaviour)
        self.commands: queue.Queue[Command] = queue.Queue()
        settings = AttacherSettings(self.drafter.address, watchdog_s, kill_quarantined=True)
        self.failures: queue.Queue[BaseException] = queue.Queue()
        self.attacher = Attacher(
            settings, FakeOffers(), self.commands.put,
            handoff or MessageHandoff(HandoffMode.HOST, ARENA, torch.device("cpu")),
            self.failures.put, cast("SharedWeights | None", weights),
        )  # fmt: skip

    def attached(self) -> Drafts:
        command = self.commands.get(timeout=WAIT_S)
        assert isinstance(command, Attach)
        return command.drafts

    def detached(self) -> Detach:
        command = self.commands.get(timeout=WAIT_S)
        assert isinstance(command, Detach)
        return command


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []
    with tempfile.TemporaryDirectory(prefix="pl-") as name:

        def make(**options: object) -> Bench:
            made.append(Bench(Path(name), **options))  # type: ignore[arg-type]
            made[-1].attacher.start()
            return made[-1]

        yield make
        for each in made:
            each.attacher.close()
            each.drafter.stop()


def plan(number: int) -> Plan:
    return Plan(number, 4, (0, 2), 2, (), (), (), ())


def rounds(drafts: Drafts, numbers: range) -> list[bool]:
    results = []
    for number in numbers:
        drafts.ask(plan(number))
        results.append(drafts.wait(plan(number)))
    return results


def test_rounds_are_asked_and_answered(bench: Callable[..., Bench]) -> None:
    it = bench()
    drafts = it.attached()
    assert rounds(drafts, range(1, 21)) == [True] * 20
    assert it.drafter.rounds == list(range(1, 21))
    assert it.attacher.state is AttachState.ATTACHED
    assert it.attacher.generation == drafts.generation == it.drafter.attaches[0].generation


def test_answers_of_other_rounds_are_skipped(bench: Callable[..., Bench]) -> None:
    it = bench(behaviour=Behaviour(garbage=True))
    assert rounds(it.attached(), range(1, 9)) == [True] * 8


def test_a_late_drafter_is_quarantined_and_the_next_generation_attaches(bench: Callable[..., Bench]) -> None:
    it = bench()
    drafts = it.attached()
    assert rounds(drafts, range(1, 3)) == [True] * 2
    assert isinstance(drafts, AttachedDrafts)
    drafts.attachment.watchdog_s = 0.2
    it.drafter.behaviour.hang.set()
    assert rounds(drafts, range(3, 6)) == [False] * 3
    assert not drafts.speculating
    assert drafts.fallback == "late"
    assert it.detached() == Detach(drafts.generation, "late")
    it.drafter.behaviour.hang.clear()
    fresh = it.attached()
    assert fresh.generation > drafts.generation
    assert rounds(fresh, range(6, 8)) == [True] * 2
    assert (it.attacher.attached, it.attacher.quarantined) == (2, 1)


def test_a_flood_of_wrong_answers_counts_as_late(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    it = bench(watchdog_s=0.3)
    drafts = it.attached()
    wrong = pb.PaceResponse(generation=1, round=0)
    monkeypatch.setattr(it.drafter, "answer", lambda request: itertools.repeat(wrong, 100_000))
    assert rounds(drafts, range(1, 2)) == [False]
    assert it.detached() == Detach(drafts.generation, "late")


class Flood:
    """A Pace stream that says more than anybody asked for, and ends."""

    def Pace(self, requests: object) -> Iterator[pb.PaceResponse]:
        return (pb.PaceResponse(round=number) for number in range(10_000))


def test_of_a_flood_that_nobody_reads_only_the_latest_answers_are_kept() -> None:
    ended = threading.Event()
    stream = PaceStream(Flood(), ended.set)  # type: ignore[arg-type]
    assert ended.wait(WAIT_S)
    kept = []
    while (answer := stream.receive(WAIT_S)) is not None:
        kept.append(answer.round)
    assert 0 < len(kept) < 100
    assert kept[-1] == 9_999


def test_an_ended_stream_is_noticed_without_a_round(bench: Callable[..., Bench]) -> None:
    it = bench()
    drafts = it.attached()
    assert rounds(drafts, range(1, 3)) == [True] * 2
    it.drafter.stop()
    assert it.detached() == Detach(drafts.generation, "lost")
    assert rounds(drafts, range(3, 4)) == [False]


def test_a_stream_that_ends_in_mid_round_is_lost(bench: Callable[..., Bench]) -> None:
    it = bench(behaviour=Behaviour(end_after=2))
    assert rounds(it.attached(), range(1, 5)) == [True, True, False, False]
    assert it.detached().fallback == "lost"


@pytest.mark.parametrize("wrong", [{"refuse": True}, {"wrong_nonce": True}, {"version": 9}])
def test_a_refused_handshake_is_tried_again(bench: Callable[..., Bench], wrong: dict[str, object]) -> None:
    it = bench(behaviour=Behaviour(**wrong))  # type: ignore[arg-type]
    end = time.monotonic() + WAIT_S
    while len(it.drafter.attaches) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert it.attacher.state is AttachState.NONE
    assert it.commands.empty()
    generations = [each.generation for each in it.drafter.attaches]
    assert generations == sorted(set(generations)), "a generation is used once"
    it.drafter.behaviour = Behaviour()
    assert it.attached().generation > generations[-1]


def test_a_damaged_copy_of_the_weights_is_sent_again(bench: Callable[..., Bench]) -> None:
    weights = FakeWeights()
    it = bench(behaviour=Behaviour(finds_damage=1), weights=weights)
    assert it.attached().generation == 1
    assert weights.sent == 1
    assert it.failures.empty()


def test_a_drafter_that_finds_damage_again_is_refused(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    weights = FakeWeights()
    it = bench(behaviour=Behaviour(finds_damage=1 << 30), weights=weights)
    until(lambda: "no drafter: damaged" in caplog.text)
    assert len(it.drafter.attaches) == 2
    assert weights.sent == 1
    assert it.commands.empty()
    assert it.failures.empty()
    assert told(caplog, "services.target.drafting")[-1].levelname == "WARNING"


def test_damage_of_the_targets_own_weights_ends_it(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    it = bench(behaviour=Behaviour(finds_damage=1), weights=FakeWeights(damaged=True))
    assert isinstance(it.failures.get(timeout=WAIT_S), DamagedWeightsError)
    assert [each.levelname for each in caplog.records if "the target ends" in each.message] == ["ERROR"]
    assert it.commands.empty()


@pytest.mark.parametrize("ended", [True, False])
def test_flags_of_a_drafter_that_may_live_are_not_given_away(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ended: bool
) -> None:
    monkeypatch.setattr(flags_module, "FlagPair", lambda flags, generation: NoFlags())
    monkeypatch.setattr(Attachment, "gone", lambda attachment: ended)
    caplog.set_level("INFO")
    it = bench(handoff=FlagHandoff(ARENA, watchdog_s=20.0, pairs=2))
    for _ in range(2):
        given_up = it.attached()
        assert isinstance(given_up, AttachedDrafts)
        given_up.attachment.give_up()
        it.detached()
    if ended:
        assert it.attached().generation == 3
    else:
        until(lambda: "no flags are left" in caplog.text)
        assert len(it.drafter.attaches) == 2


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_kernel_tells_who_listens() -> None:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        path = f"{name}/s"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            assert listener_pid(f"unix:{path}") == os.getpid()
        assert listener_pid(f"unix:{path}") == 0
    assert listener_pid("127.0.0.1:1") == 0
