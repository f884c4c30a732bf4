"""What services make of the node they land on, and how a node is left."""

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.cluster import node
from deploy.cluster.cores import Cores
from deploy.cluster.derived import MOVE_S
from deploy.cluster.settings import ClusterSettings
from deploy.cluster.specs import pair_spec
from services.common.serving.addresses import host_port
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

TARGET = TargetSettings(model="m", insecure=True, grpc="auto:50061", health="auto:0", metrics="auto:50062")


@pytest.mark.parametrize(("gpus", "ports"), [([], (50061, 50062)), ([0], (50061, 50062)), ([3], (50070, 50071))])
def test_auto_is_the_address_of_the_node_and_its_ports_follow_the_gpu(gpus: list[int], ports: tuple[int, int]) -> None:
    here = node.localised(TARGET, "10.0.0.7", gpus)
    assert (here.grpc, here.metrics) == (f"10.0.0.7:{ports[0]}", f"10.0.0.7:{ports[1]}")
    assert here.health == "10.0.0.7:0"


def test_given_addresses_stay(tmp_path: Path) -> None:
    given = DrafterSettings(proposer="none", grpc=f"unix:{tmp_path}/new/d.sock", metrics="127.0.0.1:9")
    assert node.localised(given, "10.0.0.7", [2]) == given
    assert (tmp_path / "new").is_dir()


def test_both_services_of_a_pair_report_as_that_pair(tmp_path: Path) -> None:
    settings = ClusterSettings(model="m", drafter="d", model_name="llm", pair_prefix="pod-1-", drain_s=120.0)
    spec = pair_spec(settings, 2, "paceline_pair", tmp_path)
    assert spec.drafter is not None
    assert (spec.target.pair_id, spec.target.model_name) == ("pod-1-pair-2", "llm")
    assert (spec.drafter.pair_id, spec.drafter.model_name) == ("pod-1-pair-2", "llm")


def test_requests_have_the_grace_less_the_time_to_move(tmp_path: Path) -> None:
    settings = ClusterSettings(model="m", proposer="none", drain_s=120.0)
    assert pair_spec(settings, 0, "GPU", tmp_path).target.drain_grace_s == 120.0 - MOVE_S
    assert pair_spec(replace(settings, drain_s=1.0), 0, "GPU", tmp_path).target.drain_grace_s == 0.0


async def test_leaving_drains_everything_that_serves(tmp_path: Path) -> None:
    drained: list[str] = []

    async def drain(name: str) -> None:
        await asyncio.sleep(0.2)
        drained.append(name)

    serving = [
        asyncio.create_task(node.drain_when_asked(tmp_path / name, lambda name=name: drain(name)))  # type: ignore[misc]
        for name in ("pair-0", "pair-1")
    ]
    await asyncio.sleep(0.3)
    assert drained == []
    assert await node.leave(tmp_path, 10.0)
    assert sorted(drained) == ["pair-0", "pair-1"]
    await asyncio.gather(*serving)
    assert await node.leave(tmp_path, 0.0)


async def test_leaving_gives_up_when_the_time_is_over(tmp_path: Path) -> None:
    serving = asyncio.create_task(node.drain_when_asked(tmp_path / "pair-0", asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    assert not await node.leave(tmp_path, 0.3)
    serving.cancel()


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Cores]]:
    """Makes clusters of so many pairs on a machine with cores that no other has; gives their cores back."""
    made: list[Cores] = []

    def cluster(pairs: int) -> Cores:
        made.append(Cores(pairs))
        return made[-1]

    first = 10_000 + os.getpid() * 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {first + core for core in range(4)})
    yield cluster
    for cores in made:
        cores.close()


ON_CPU = ClusterSettings(model="m", drafter="d", placement="cpu")


def test_a_pair_on_a_cpu_takes_its_turns_on_one_core(tmp_path: Path, four_cores: Callable[[int], Cores]) -> None:
    cores, first = four_cores(1), min(os.sched_getaffinity(0))
    spec = pair_spec(ON_CPU, 0, "paceline_pair", tmp_path, cores)
    assert spec.drafter is not None
    assert spec.target.core == spec.drafter.core == first
    assert pair_spec(ON_CPU, 0, "paceline_pair", tmp_path, cores).target.core == first
    assert pair_spec(ON_CPU, 0, "GPU", tmp_path, cores).target.core == -1


def test_pairs_of_two_clusters_take_different_cores(four_cores: Callable[[int], Cores]) -> None:
    one, other, first = four_cores(2), four_cores(3), min(os.sched_getaffinity(0))
    assert [one.take(0), one.take(1)] == [first, first + 1]
    assert [other.take(index) for index in range(3)] == [first + 2, first + 3, -1]
    one.close()
    assert other.take(2) == first


def test_as_many_pairs_as_cores_take_none(four_cores: Callable[[int], Cores]) -> None:
    assert [four_cores(4).take(index) for index in range(4)] == [-1] * 4


def test_a_service_with_threads_of_its_own_number_is_not_kept_on_one_core(
    tmp_path: Path, four_cores: Callable[[int], Cores]
) -> None:
    settings, cores = replace(ON_CPU, target_settings={"threads": 2}), four_cores(1)
    spec = pair_spec(settings, 0, "paceline_pair", tmp_path, cores)
    assert spec.drafter is not None
    assert (spec.target.core, spec.drafter.core) == (-1, min(os.sched_getaffinity(0)))


def test_addresses_of_ipv6_stand_in_brackets(tmp_path: Path) -> None:
    settings = ClusterSettings(model="m", drafter="d", host="fd00::7", base_port=50061, insecure=True)
    spec = pair_spec(settings, 1, "GPU", tmp_path)
    assert spec.drafter is not None
    assert (spec.target.grpc, spec.target.health) == ("[fd00::7]:50064", "[fd00::7]:0")
    assert (spec.target.metrics, spec.drafter.metrics) == ("[fd00::7]:50065", "[fd00::7]:50066")
    here = node.localised(TARGET, "fd00::7", [1])
    assert (here.grpc, here.health, here.metrics) == ("[fd00::7]:50064", "[fd00::7]:0", "[fd00::7]:50065")
    assert host_port("[fd00::7]", 1) == "[fd00::7]:1"
