"""Pairs that stay unhealthy are started anew, some are given up, and the others of the controller serve on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from deploy.cluster import controller, pair
from deploy.cluster.meter import PairMeter
from deploy.cluster.pair import PlacedPair
from deploy.cluster.registry import Registry
from deploy.cluster.report import ActorReport
from deploy.cluster.settings import ClusterSettings
from services.common.metrics.catalogue import PairMetrics
from services.common.serving.server import Bound
from tests.support.metrics import value_of
from tests.support.told import told

BOUND = Bound("h:1", "h:2", "h:3")
WAIT_S = 30.0


class Service:
    """An actor that answers, hangs, or tells of an engine that stands still."""

    pids = 0

    def __init__(self) -> None:
        Service.pids += 1
        self.answer = ActorReport(Service.pids, BOUND, True, (), "none")
        self.hangs = False
        self.report = self

    async def remote(self) -> ActorReport:
        while self.hangs:
            await asyncio.sleep(0.01)
        return self.answer


class Held(PlacedPair):
    """A pair whose services the test holds in its hands; pairs named in broken never become ready."""

    broken: frozenset[str] = frozenset()
    made: dict[str, "Held"] = {}  # noqa: RUF012 - the controller makes them, the test looks them up

    async def place(self, timeout_s: float = 60.0) -> None:
        self.made[self.spec.pair_id] = self
        self._target, self._drafter = Service(), Service()
        if self.spec.pair_id in self.broken:
            self._target.answer = replace(self._target.answer, ready=False)

    def replace_drafter(self) -> None:
        self._forget()
        self._drafter = Service()

    def end(self) -> None:
        self._forget()
        self._target = self._drafter = None
        self.status = replace(self.status, address="", ready=False, target_pid=0, drafter_pid=0)

    async def drain(self, timeout_s: float) -> None:
        self.end()


class Rig:
    """A controller that runs, and what it counts."""

    def __init__(self, folder: Path, settings: ClusterSettings) -> None:
        names = [f"pair-{index}" for index in range(settings.pairs)]
        self.metrics = PairMetrics.each(CollectorRegistry(), "m", names)
        meters = {name: PairMeter(its) for name, its in self.metrics.items()}
        self.registry = Registry()
        self.kept = controller.Controller(settings, "paceline_pair", folder, self.registry, meters)
        self.running = asyncio.create_task(self.kept.run())

    async def until(self, *states: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while [entry.state for entry in self.registry.snapshot.pairs] != list(states):
                await asyncio.sleep(0.005)

    def counted(self, pair_id: str, reason: str) -> float:
        return value_of(self.metrics[pair_id].cluster_failures[reason])


Run = Callable[..., AbstractAsyncContextManager[Rig]]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(controller, "PlacedPair", Held)
    monkeypatch.setattr(Held, "made", {})
    monkeypatch.setattr(pair, "ANSWER_S", 0.05)
    monkeypatch.setattr(pair, "DRAFTER_S", 0.01)

    @asynccontextmanager
    async def run(pairs: int = 1, broken: tuple[str, ...] = (), **values: float) -> AsyncIterator[Rig]:
        monkeypatch.setattr(Held, "broken", frozenset(broken))
        given = {"poll_s": 0.005, "restart_backoff_s": 0.005} | values
        rig = Rig(tmp_path, ClusterSettings(model="m", drafter="d", pairs=pairs, **given))  # type: ignore[arg-type]
        try:
            yield rig
        finally:
            rig.running.cancel()
            await asyncio.gather(rig.running, return_exceptions=True)

    return run


@pytest.mark.parametrize("fault", ["silent", "stuck"])
async def test_a_target_that_hangs_is_started_anew_and_one_line_says_why(
    running: Run, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running() as rig:
        await rig.until("ready")
        held = Held.made["pair-0"]
        first, drafter = held._target, held._drafter
        if fault == "silent":
            first.hangs = True
        else:
            first.answer = replace(first.answer, still_s=31.0)
        async with asyncio.timeout(WAIT_S):
            while held._target in (first, None):
                await asyncio.sleep(0.005)
        await rig.until("ready")
        states = [record.getMessage() for record in told(caplog) if record.getMessage().startswith("a pair is")]
        assert states == ["a pair is ready", "a pair is ready no more", "a pair is ready"]
        assert held._drafter is not drafter, "the pair is started anew"
        assert held.status.target_restarts == 1
        assert rig.counted("pair-0", "unhealthy") == 1
    (line,) = [record for record in told(caplog, "deploy") if record.levelno >= logging.ERROR]
    assert vars(line)["pair"] == "pair-0"
    assert vars(line)["unhealthy"] == "target"
    reasons = {"silent": "3 health reads failed", "stuck": "its engine has finished no turn for 31 s"}
    assert vars(line)["reason"] == reasons[fault]


async def test_a_drafter_that_hangs_is_replaced_and_its_target_serves_on(running: Run) -> None:
    async with running() as rig:
        await rig.until("ready")
        held = Held.made["pair-0"]
        target, drafter = held._target, held._drafter
        drafter.hangs = True
        async with asyncio.timeout(WAIT_S):
            while held._drafter is drafter:
                await asyncio.sleep(0.005)
                assert rig.registry.snapshot.pairs[0].state == "ready"
        assert held._target is target
        async with asyncio.timeout(WAIT_S):
            while held.status.drafter_restarts != 1:
                await asyncio.sleep(0.005)
        assert held.status.target_restarts == 0


async def test_one_pair_of_eight_that_never_starts_is_given_up_and_seven_serve(running: Run) -> None:
    states = ["ready"] * 8
    states[3] = "failed"
    async with running(8, ("pair-3",), startup_s=0.02, restart_limit=2) as rig:
        await rig.until(*states)
        assert rig.kept.ready
        entry = rig.registry.snapshot.pairs[3]
        assert entry.message == "given up after 2 restarts within 1800 s"
        assert entry.target_address == ""
        assert rig.counted("pair-3", "given_up") == 1
        assert value_of(rig.metrics["pair-3"].cluster_pairs["failed"]) == 1
        await asyncio.sleep(0.05)
        assert not rig.running.done()
        assert rig.kept.ready


async def test_a_pair_that_starts_keeps_neither_the_others_nor_the_controller_from_serving(running: Run) -> None:
    async with running(2, ("pair-1",)) as rig:
        await rig.until("ready", "starting")
        assert rig.kept.ready


async def test_a_target_that_keeps_crashing_is_given_up_though_ray_restarts_it(running: Run) -> None:
    async with running(restart_limit=3) as rig:
        await rig.until("ready")
        target = Held.made["pair-0"]._target
        held = Held.made["pair-0"]
        async with asyncio.timeout(WAIT_S):
            for crash in range(4):
                target.answer = replace(target.answer, pid=10_000 + crash)
                while held.status.target_pid != target.answer.pid and not rig.running.done():
                    await asyncio.sleep(0.005)
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(rig.running, WAIT_S)
        assert isinstance(ended.value.exceptions[0], controller.NoPairLeftError)
        assert [entry.state for entry in rig.registry.snapshot.pairs] == ["failed"]


async def test_the_controller_ends_when_the_last_pair_is_given_up(running: Run) -> None:
    async with running(2, ("pair-0", "pair-1"), startup_s=0.02, restart_limit=1) as rig:
        with pytest.raises(ExceptionGroup):
            await asyncio.wait_for(rig.running, WAIT_S)
        assert [entry.state for entry in rig.registry.snapshot.pairs] == ["failed", "failed"]
        assert not rig.kept.ready


@pytest.mark.parametrize("name", ["startup_s", "stuck_s", "restart_window_s"])
def test_patience_without_time_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        ClusterSettings(model="m", drafter="d", **{name: 0.0})  # type: ignore[arg-type]
