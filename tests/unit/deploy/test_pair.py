"""A pair shares one GPU: what the controller does when its services see different ones, and how GPUs are divided."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deploy.cluster import controller
from deploy.cluster.meter import PairMeter
from deploy.cluster.pair import PairSpec, PairStatus, PlacedPair, StraddledPairError
from deploy.cluster.registry import Registry
from deploy.cluster.report import ActorReport
from deploy.cluster.settings import ClusterSettings
from deploy.cluster.specs import pair_spec
from services.common.metrics.catalogue import PairMetrics
from services.common.serving.server import Bound
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings
from tests.support.metrics import value_of

SPEC = PairSpec("pair-0", TargetSettings(model="m"), DrafterSettings(proposer="none"), "GPU", 0.7)
WAIT_S = 30.0


class Remote:
    """A method of an actor."""

    def __init__(self, report: ActorReport) -> None:
        self._report = report

    def remote(self) -> Awaitable[ActorReport]:
        async def answer() -> ActorReport:
            return self._report

        return answer()


class Actor:
    """An actor that sees the GPUs."""

    def __init__(self, pid: int, *gpus: str) -> None:
        self.report = Remote(ActorReport(pid, Bound("h:1", "h:2", "h:3"), True, gpus, "timeslice"))


def pair_of(target: Actor | None, drafter: Actor | None) -> PlacedPair:
    pair = PlacedPair(SPEC)
    pair._target, pair._drafter = target, drafter
    return pair


async def test_services_that_see_different_gpus_are_an_error_that_names_both() -> None:
    pair = pair_of(Actor(1, "GPU-a"), Actor(2, "GPU-b"))
    with pytest.raises(StraddledPairError, match=r"pair-0: .*GPU-a.*GPU-b"):
        await pair.refresh()
    assert pair.status == PairStatus("pair-0")


async def test_services_that_see_one_gpu_or_of_which_one_is_down_are_no_error() -> None:
    both = await pair_of(Actor(1, "GPU-a"), Actor(2, "GPU-a")).refresh()
    assert both.ready and both.gpu_uuids == both.drafter_gpu_uuids == ("GPU-a",)
    assert (await pair_of(Actor(1, "GPU-a"), None).refresh()).ready
    assert not (await pair_of(None, Actor(2, "GPU-b")).refresh()).ready


class Straddling(PlacedPair):
    """Lands on two GPUs at first, on one when it is placed again."""

    def __init__(self, spec: PairSpec) -> None:
        super().__init__(spec)
        self.done: list[str] = []

    async def place(self, timeout_s: float = 60.0) -> None:
        self._target = Actor(1, "GPU-a")
        self._drafter = Actor(2, "GPU-a" if self.done else "GPU-b")
        self.done.append("place")

    async def drain(self, timeout_s: float) -> None:
        self.done.append("drain")


async def test_a_pair_that_straddles_gpus_is_never_announced_and_placed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "PlacedPair", Straddling)
    settings = ClusterSettings(model="m", proposer="none", poll_s=0.01)
    metrics = PairMetrics.each(CollectorRegistry(), "m", ["pair-0"])
    meters = {name: PairMeter(family) for name, family in metrics.items()}
    registry = Registry()
    keeper = controller.Controller(settings, "GPU", tmp_path, registry, meters)
    running = asyncio.create_task(keeper.run())
    announced = [entry async for entry in first_ready(registry)]
    running.cancel()
    assert {gpus for gpus, state in announced if state == "ready"} == {("GPU-a",)}
    (pair,) = keeper._pairs
    assert isinstance(pair, Straddling)
    assert pair.done == ["place", "drain", "place"]
    assert value_of(metrics["pair-0"].cluster_failures["straddled"]) == 1
    assert value_of(metrics["pair-0"].cluster_placements) == 2


async def first_ready(registry: Registry) -> Any:
    """GPUs and state of the pair in every list, up to the first in which it is ready."""
    async with asyncio.timeout(WAIT_S):
        async for snapshot in registry.watch():
            for entry in snapshot.pairs:
                yield entry.gpu_uuids, entry.state
            if any(entry.state == "ready" for entry in snapshot.pairs):
                return


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("share", [0.7, 0.5, 0.9])
def test_pairs_of_one_gpu_fit_into_it_and_each_fits_into_its_part(count: int, share: float, tmp_path: Path) -> None:
    settings = ClusterSettings(model="m", drafter="d", pairs=count, pairs_per_gpu=count, target_share=share)
    spec = pair_spec(settings, 0, "GPU", tmp_path)
    whole, target, drafter = spec.parts
    assert count * whole <= 1.0 < count * (whole + 0.001)
    assert round((target + drafter) * 10_000) == round(whole * 10_000)
    assert target / whole == pytest.approx(share, abs=0.001)
    assert spec.target.memory_fraction == pytest.approx(0.9 / count)
    assert replace(spec, amount=1.0).parts[0] == 1.0


def test_a_stand_in_for_gpus_is_not_divided(tmp_path: Path) -> None:
    settings = ClusterSettings(model="m", drafter="d", pairs=2, pairs_per_gpu=2)
    assert pair_spec(settings, 0, "paceline_pair", tmp_path).parts[0] == 1.0
