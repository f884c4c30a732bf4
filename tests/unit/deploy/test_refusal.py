"""Why a pair does not serve: told by its service, announced by the controller, put into words for the terminal."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.cluster import actors, controller
from deploy.cluster.actors import ServiceHost
from deploy.cluster.app import ClusterApp
from deploy.cluster.failure import Failure, failure_of
from deploy.cluster.fleet_service import to_pair
from deploy.cluster.meter import PairMeter
from deploy.cluster.pair import PairSpec, PlacedPair
from deploy.cluster.registry import PairEntry, Registry
from deploy.cluster.report import ActorReport
from deploy.cluster.settings import ClusterSettings
from deploy.fleet import news
from services.common.metrics.catalogue import PairMetrics
from services.common.model import ModelError
from services.common.pb.paceline.v1 import fleet_pb2
from services.common.request.errors import Code, PacelineError, Reason, invalid_field
from services.common.serving.server import BindError, Bound
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

SPEC = PairSpec("pair-0", TargetSettings(model="m"), DrafterSettings(proposer="none"), "paceline_pair", 0.7)
BOUND = Bound("h:1", "h:2", "h:3")
REFUSAL = Failure("the target cannot start: config.json: architectures: is not supported", True)


@pytest.mark.parametrize(
    ("error", "served", "message", "final"),
    [
        (ModelError("config.json: bad"), False, "the target cannot start: config.json: bad", True),
        (invalid_field("widths", "must ascend"), False, "the target cannot start: widths: must ascend", True),
        (
            PacelineError(Code.FAILED_PRECONDITION, Reason.INVALID_FIELD, "others hold the GPU"),
            False,
            "the target cannot start: others hold the GPU",
            False,
        ),
        (BindError("cannot bind h:1"), False, "the target cannot start: cannot bind h:1", False),
        (ValueError("a defect"), True, "the target failed: a defect", False),
        (RuntimeError("first\n  second"), True, "the target failed: first second", False),
        (RuntimeError(), True, "the target failed: RuntimeError()", False),
    ],
)
def test_what_is_refused_is_final_and_what_may_pass_is_not(
    error: Exception, served: bool, message: str, final: bool
) -> None:
    assert failure_of("target", error, served) == Failure(message, final)


class Service:
    """A service that does as it is told."""

    def __init__(self, start_error: Exception | None = None) -> None:
        self.start_error = start_error
        self.ready = False
        self.fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> Bound:
        if self.start_error:
            raise self.start_error
        return BOUND

    async def drain(self) -> None:
        """Nothing to finish."""


async def hosted(service: Service) -> ServiceHost:
    host = ServiceHost.__new__(ServiceHost)
    await ServiceHost.__init__(host, "target", lambda: service, "cpu")
    return host


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codes with which an actor ended its process."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(actors, "visible_gpus", lambda device: ())
    monkeypatch.setattr(actors, "TELL_S", 0.01)
    return codes


@pytest.mark.parametrize("moment", ["start", "load", "later"])
@pytest.mark.parametrize("error", [ModelError("damaged"), RuntimeError("out of memory")])
async def test_an_actor_reports_a_failure_and_ends_only_when_trying_again_may_help(
    moment: str, error: Exception, exits: list[int]
) -> None:
    service = Service(error if moment == "start" else None)
    host = await hosted(service)
    service.ready = moment == "later"
    if moment != "start":
        assert (await host.report()).failure is None
        service.fatal.set_exception(error)
    async with asyncio.timeout(30):
        while (report := await host.report()).failure is None or not (exits or report.failure.final):
            await asyncio.sleep(0.005)
    await asyncio.sleep(2 * actors.TELL_S)
    verb = "failed" if moment == "later" else "cannot start"
    assert report.failure is not None
    assert report.failure.message == f"the target {verb}: {error}"
    assert not report.ready
    assert exits == ([] if report.failure.final else [1])
    await host.drain()


class Answers:
    """An actor whose report the test sets."""

    def __init__(self, failure: Failure | None = None, ready: bool = False) -> None:
        self.answer = ActorReport(1, BOUND, ready, (), "none", failure)
        self.report = self

    async def remote(self) -> ActorReport:
        return self.answer


class Scripted(PlacedPair):
    """A pair of actors that the test holds in its hands; the second pair serves."""

    refusing: Any = None
    drafting: Any = None

    async def place(self, timeout_s: float = 60.0) -> None:
        first = self.spec.pair_id == "pair-0"
        self._target = type(self).refusing if first else Answers(ready=True)
        self._drafter = type(self).drafting if first else None

    async def drain(self, timeout_s: float) -> None:
        """Nothing to finish."""


def keeper(tmp_path: Path, registry: Registry, pairs: int) -> controller.Controller:
    settings = ClusterSettings(model="m", proposer="none", pairs=pairs, poll_s=0.01)
    metrics = PairMetrics.each(CollectorRegistry(), "m", [f"pair-{index}" for index in range(pairs)])
    meters = {name: PairMeter(family) for name, family in metrics.items()}
    return controller.Controller(settings, "paceline_pair", tmp_path, registry, meters)


@pytest.mark.parametrize(("target", "drafter"), [(REFUSAL, None), (None, REFUSAL)])
async def test_a_refusal_is_announced_and_ends_the_controller(
    target: Failure | None, drafter: Failure | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "PlacedPair", Scripted)
    monkeypatch.setattr(Scripted, "refusing", Answers(target))
    monkeypatch.setattr(Scripted, "drafting", Answers(drafter))
    registry = Registry()
    kept = keeper(tmp_path, registry, pairs=1)
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(kept.run(), 30)
    assert isinstance(ended.value.exceptions[0], controller.NoPairLeftError)
    (entry,) = registry.snapshot.pairs
    assert (entry.state, entry.message, entry.target_address) == ("failed", REFUSAL.message, "")
    await kept.drain()
    assert registry.snapshot.pairs == (entry,), "it stays failed to the end"
    assert to_pair(entry).state == fleet_pb2.PAIR_STATE_FAILED
    assert to_pair(entry).message == REFUSAL.message


async def test_a_refusal_is_fatal_to_the_process_of_the_controller(tmp_path: Path) -> None:
    app = ClusterApp(ClusterSettings(model="m", proposer="none", run_dir=str(tmp_path)))
    app.fatal = asyncio.get_running_loop().create_future()

    async def run() -> None:
        raise ExceptionGroup("", [controller.NoPairLeftError("pair-0: damaged")])

    task = asyncio.create_task(run())
    task.add_done_callback(app._controller_ended)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert isinstance(app.fatal.exception(), ExceptionGroup), "lifecycle ends such a process with 1"


async def test_a_refusal_of_one_pair_does_not_end_what_others_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "PlacedPair", Scripted)
    starting = Answers()
    monkeypatch.setattr(Scripted, "refusing", starting)
    registry = Registry()
    running = asyncio.create_task(keeper(tmp_path, registry, pairs=2).run())
    async with asyncio.timeout(30):
        async for snapshot in registry.watch():
            states = [entry.state for entry in snapshot.pairs]
            if states == ["starting", "ready"]:
                starting.answer = replace(starting.answer, failure=REFUSAL)
            if states == ["failed", "ready"]:
                break
    await asyncio.sleep(0.05)
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_failure_that_passes_is_announced_until_it_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "PlacedPair", Scripted)
    target = Answers(Failure("the target failed: out of memory", False))
    monkeypatch.setattr(Scripted, "refusing", target)
    registry = Registry()
    running = asyncio.create_task(keeper(tmp_path, registry, pairs=1).run())
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(30):
        async for snapshot in registry.watch():
            seen += [(entry.state, entry.message) for entry in snapshot.pairs]
            if seen and seen[-1][1]:
                target.answer = replace(target.answer, failure=None, ready=True, pid=2)
            if seen and seen[-1][0] == "ready":
                break
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert seen[-2:] == [("starting", "the target failed: out of memory"), ("ready", "")]


async def test_a_drafter_that_does_not_answer_keeps_back_no_news_of_its_target() -> None:
    class Mute:
        def __init__(self) -> None:
            self.report = self

        async def remote(self) -> None:
            await asyncio.sleep(60)

    pair = PlacedPair(SPEC)
    pair._target, pair._drafter = Answers(REFUSAL), Mute()
    begun = asyncio.get_running_loop().time()
    status = await pair.refresh()
    assert (status.failure, status.final) == (REFUSAL.message, True)
    assert asyncio.get_running_loop().time() - begun < 3.0


READY = PairEntry("pair-0", "h:1", "m", "ready")


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        (READY, READY, ""),
        (READY, replace(READY, state="down", target_address=""), "pair-0 does not serve; it is started again"),
        (READY, replace(READY, state="down", message="the target failed: x"), "pair-0: the target failed: x"),
        (replace(READY, state="down", message="x"), replace(READY, state="starting", message="x"), ""),
        (
            replace(READY, state="starting"),
            replace(READY, target_address="h:2", target_restarts=1),
            "pair-0 serves again at h:2 (target restarts: 1)",
        ),
        (
            READY,
            replace(READY, target_address="h:2", target_restarts=1),
            "pair-0 serves again at h:2 (target restarts: 1)",
        ),
        (READY, replace(READY, drafter_restarts=2), "pair-0: its drafter was started again (restarts: 2)"),
        (READY, replace(READY, state="failed", message="refused"), "pair-0 failed: refused"),
        (
            replace(READY, state="failed", message="refused"),
            replace(READY, state="failed", message="refused"),
            "",
        ),
    ],
)
def test_one_line_tells_what_became_of_a_pair(before: PairEntry, now: PairEntry, line: str) -> None:
    assert news(to_pair(before), to_pair(now)) == line
