"""F14: a worker's pod heals by itself or ends, within a minute of the fault, and its log says so in one line."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from tests.faults.answers import Answer, same
from tests.faults.cluster_with_mps import CONTROL_PROGRAM
from tests.faults.conftest import Size
from tests.faults.pods import Pod, Pods, running_pods

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.whole, pytest.mark.alone]
STREAMS, TOKENS = 6, 96
PACE = "plan:pace=0.05"
HEALED_S = 60.0


def _signalled(name: str, number: signal.Signals) -> Callable[[Pod], None]:
    return lambda pod: os.kill(pod.pid(name), number)


def _controller_stopped(pod: Pod) -> None:
    assert pod.process is not None
    pod.process.process.send_signal(signal.SIGSTOP)


def _drafting_held(pod: Pod) -> None:
    """Stops the thread that drafts; the process goes on to answer."""
    command = [sys.executable, "-m", "tests.faults.hold_thread", str(pod.pid("ray::DrafterHost"))]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline().strip().isdigit(), "the kernel lets a process of one's own be traced"


def _daemon_killed(pod: Pod) -> None:
    """The one that lives; those of earlier trials have left their folders."""
    pids = (int(path.read_text()) for path in (pod.folder / pod.name).glob("mps-*/pid"))
    (pid,) = (pid for pid in pids if Path(f"/proc/{pid}").exists())
    os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Fault:
    """What is done to the victim, what its log says of it, and whether the container ends by that."""

    strike: Callable[[Pod], None]
    line: str
    ends: bool = False
    points: str = PACE
    module: str = "deploy.cluster"
    streams: int = STREAMS
    told: dict[str, str] = field(default_factory=dict)


ANEW, LATE = "a service stays unhealthy and is started anew", "drafter is late: killed"
LOST = ": the controller ends, and its pairs with it"
SILENT = {"reason": "3 health reads failed"}
FAULTS = {
    "target stopped": Fault(
        _signalled("ray::TargetHost", signal.SIGSTOP), ANEW, told={"unhealthy": "target", **SILENT}
    ),
    "target's engine stuck": Fault(
        lambda pod: None,
        ANEW,
        points=f"{PACE},verify:sleep=600@10",
        told={"unhealthy": "target", "reason": "its engine has finished no turn for 30 s"},
    ),
    "drafter stopped": Fault(_signalled("ray::DrafterHost", signal.SIGSTOP), LATE),
    "drafter's engine stuck": Fault(_drafting_held, LATE),
    "idle drafter stopped": Fault(
        _signalled("ray::DrafterHost", signal.SIGSTOP), ANEW, streams=0, told={"unhealthy": "drafter", **SILENT}
    ),
    "controller stopped": Fault(_controller_stopped, "", ends=True),
    "raylet killed": Fault(_signalled("raylet", signal.SIGKILL), f"raylet of Ray has ended{LOST}", ends=True),
    "GCS killed": Fault(_signalled("gcs_server", signal.SIGKILL), f"GCS of Ray has ended{LOST}", ends=True),
    "MPS daemon killed": Fault(
        _daemon_killed, f"the MPS daemon has ended{LOST}", ends=True, module="tests.faults.cluster_with_mps"
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pods() -> AsyncIterator[Pods]:
    """A pod that no fault meets, and a gateway."""
    async with running_pods({"PACELINE_SYNC_POINTS": PACE}) as made:
        program = made.folder / "nvidia-cuda-mps-control"
        program.write_text(CONTROL_PROGRAM)
        program.chmod(0o755)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def expected(pods: Pods) -> list[Answer]:
    """What the pod that no fault meets answers."""
    return list(await asyncio.gather(*(pods.ask(number, TOKENS) for number in range(STREAMS))))


@pytest.mark.parametrize("kind", FAULTS)
async def test_f14_a_pod_heals_or_ends(pods: Pods, expected: list[Answer], size: Size, kind: str) -> None:
    times = [await _trial(pods, FAULTS[kind], expected) for _ in range(size(1, 1))]
    assert max(times) <= HEALED_S, times
    print(f"F14 {kind}: {len(times)}; healed in median {statistics.median(times):.1f} s, max {max(times):.1f} s")


async def _trial(pods: Pods, fault: Fault, expected: list[Answer]) -> float:
    """Seconds from the fault until the pair served again, or the container was gone."""
    path = f"{pods.folder}{os.pathsep}{os.environ['PATH']}"
    await pods.restart_victim({"PACELINE_SYNC_POINTS": fault.points, "PATH": path}, fault.module)
    victim = pods.victim
    streams = await asyncio.gather(*(pods.begin(number, TOKENS) for number in range(fault.streams)))
    began = time.monotonic()
    await asyncio.to_thread(fault.strike, victim)
    await pods.until(lambda: victim.gone if fault.ends else victim.served_again, 2 * HEALED_S)
    healed_s = time.monotonic() - began
    for number, stream in enumerate(streams):
        assert same(await stream.task, expected[number]), "no stream is lost where another pair is ready"
    if fault.ends:
        await _ended(victim, by_probe=not fault.line)
    if fault.line:
        _told(victim, fault)
    return healed_s


async def _ended(victim: Pod, by_probe: bool) -> None:
    """The kubelet ended the container, or it ended itself with 1 and left no process."""
    assert victim.process is not None
    assert victim.ended == ("liveness" if by_probe else "")
    assert by_probe or victim.process.process.returncode == 1
    async with asyncio.timeout(60.0):
        while victim.living():
            await asyncio.sleep(0.05)


def _told(victim: Pod, fault: Fault) -> None:
    """One line of the log, with pair and reason."""
    (line,) = (line for line in victim.lines() if line.get("message") == fault.line)
    assert fault.ends or line["pair"] == victim.pair.pair_id
    assert {key: line[key] for key in fault.told} == fault.told
