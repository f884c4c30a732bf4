"""Three worker pods and two gateways as processes, each on a disk of its own, kept running as a kubelet does."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from deploy.stack import EMBEDDED, ServiceProcess, describe_target
from services.common.pb.paceline.v1 import inference_pb2_grpc
from services.common.serving.channel import connect
from services.common.serving.process import name_of
from tests.bench.chaos.clients import Ask, read_generate, read_http
from tests.faults.pods import ENVIRONMENT, Pod, session_of
from tests.faults.rest import footprint, scrape
from tests.faults.shim import Clock

UP_S, REST_S, POLL_S = 600.0, 60.0, 0.3
KEPT_DESCRIPTORS = 2
GROWN_S = 20.0
"""A younger process is still opening what it needs."""

DISK = "64m"
SECRET = "of this run alone"
PACE = "plan:pace=0.02"


def workers_logs(pid: int) -> int:
    """Logs of workers that a process has open: Ray's log monitor keeps at most 200, those of workers that ended too."""
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "/logs/worker-" in os.readlink(descriptor)
    return found


def age_s(pid: int) -> float:
    """Seconds that a process has lived."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class Disk:
    """A file system of its own, which can be filled; needs a mount namespace that lets us mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "chaos", folder], check=True)

    def fill(self) -> None:
        """Takes the last byte."""
        piece = bytes(1 << 20)
        with (self.folder / "full").open("ab", buffering=0) as file:
            while piece:
                try:
                    file.write(piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece = piece[: len(piece) // 2]

    def free(self) -> None:
        """Gives it back."""
        (self.folder / "full").unlink(missing_ok=True)

    def close(self) -> None:
        """Takes it away."""
        subprocess.run(["umount", "--lazy", self.folder], check=False)


class Gateway:
    """A gateway's container, which keeps its addresses over restarts."""

    def __init__(self, disk: Disk, clock: Clock, name: str, ports: list[int], flags: list[str]) -> None:
        self.disk, self.clock, self.name = disk, clock, name
        self.grpc, self.http, self.metrics, self.health = (f"127.0.0.1:{port}" for port in ports)
        self._flags = flags
        self.lives, self.up = 0, False
        self._ending: set[int] = set()
        self._killed: set[int] = set()
        self.process: ServiceProcess | None = None
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    def start(self) -> None:
        """Starts the container."""
        self.lives += 1
        own = ["--grpc", self.grpc, "--http", self.http, "--metrics", self.metrics, "--health", self.health]
        own += ["--target-secret-file", str(self.disk.folder / "secret")]
        command = ["services.gateway", *own, *self._flags]
        environment = {**ENVIRONMENT, **self.clock.environment}
        self.process = ServiceProcess(f"{self.name}.{self.lives}", command, self.disk.folder, environment)

    def end(self, killed: bool) -> None:
        """Says that a fault is about to end this life, at once or in good order."""
        self.up = False
        self._ending.add(self.lives)
        self._killed |= {self.lives} if killed else set()

    def look(self) -> None:
        """Finds whether it serves."""
        self.up = self.lives not in self._ending and self.targets() > 0

    def excuses(self, lives: int, begun: bool) -> bool:
        """Whether a stream of that life that failed has its gateway to blame."""
        return lives in self._killed or not (begun or self.up)

    def connect(self) -> None:
        """Makes the channel that its clients share; it finds every later process."""
        self._channel = connect(self.grpc)
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self.process is not None
        return self.process.process.pid

    @property
    def gone(self) -> bool:
        """The process has ended."""
        return self.process is not None and self.process.process.poll() is not None

    def children(self) -> list[int]:
        """Its processes that render chats."""
        return [pid for pid in session_of(self.pid) if pid != self.pid]

    def targets(self) -> float:
        """Targets that are ready in its eyes."""
        try:
            return scrape(self.metrics).get("paceline_gateway_ready_targets", 0.0)
        except (OSError, ValueError):
            return 0.0

    async def read(self, ask: Ask, key: str, begun: Callable[[], None], off: bool = False) -> str:
        """A stream of a client of this gateway.

        Raises:
            StreamError: it ended without the whole text.
        """
        if ask.kind == "generate":
            return await read_generate(self._stub, ask, key, begun, off)
        return await read_http(self.http, ask, key, begun, off)

    async def close(self) -> None:
        """Ends it."""
        if self._channel is not None:
            await self._channel.close()
        if self.process is not None:
            await asyncio.to_thread(self.process.stop, 0.0)


class Place:
    """The whole of it; `members` are what a fault may meet."""

    def __init__(self, folder: Path, library: Path, ports: list[int], pods: int, gateways: int) -> None:
        """`ports` are five for each pod and four for each gateway."""
        self.pods, self.gateways = [], []
        self.clocks: dict[str, Clock] = {}
        self.disks: dict[str, Disk] = {}
        self._first: dict[int, int] = {}
        self.kept: list[str] = []
        self._totals: dict[int, float] = {}
        for index in range(pods):
            disk, _ = self._room(folder, f"p{index}", library)
            self.pods.append(Pod(disk.folder, f"p{index}", ports[5 * index : 5 * index + 5]))
        flags = [f"--watch={','.join(pod.address for pod in self.pods)}", "--model=embedded"]
        flags += ["--tokenizer", str(EMBEDDED / "target"), "--propagation-s=0.1"]
        rest = ports[5 * pods :]
        for index in range(gateways):
            disk, clock = self._room(folder, f"g{index}", library)
            self.gateways.append(Gateway(disk, clock, f"g{index}", rest[4 * index : 4 * index + 4], flags))
        self._keeper: asyncio.Task[None] | None = None

    def _room(self, folder: Path, name: str, library: Path) -> tuple[Disk, Clock]:
        disk = self.disks[name] = Disk(folder / name)
        (disk.folder / "secret").write_text(SECRET)
        # Beside the disk, so that a full one does not stop the clock.
        beside = folder / f"{name}.clock"
        beside.mkdir()
        clock = self.clocks[name] = Clock(beside, library)
        return disk, clock

    async def start(self) -> None:
        """Starts all of it, pods one after the other, and waits until every gateway knows every pod."""
        for gateway in self.gateways:
            gateway.start()
            gateway.connect()
        self._keeper = asyncio.create_task(self._keep())
        for pod in self.pods:
            self._start_pod(pod)
            await self._until(lambda pod=pod: pod.ready, "a pod")  # type: ignore[misc]
        await self.healed()

    def _start_pod(self, pod: Pod) -> None:
        points = {"PACELINE_SYNC_POINTS": PACE, **self.clocks[pod.name].environment}
        pod.start(points)

    async def _keep(self) -> None:
        """Starts again what has ended, and looks after pods that have become ready."""
        while True:
            await asyncio.sleep(POLL_S)
            for pod in self.pods:
                if pod.process is None:
                    continue
                if pod.gone:
                    await asyncio.to_thread(pod.stop)
                    with contextlib.suppress(OSError):  # A full disk: again, as a kubelet does.
                        self._start_pod(pod)
                elif not pod.probed and await asyncio.to_thread(lambda pod=pod: pod.ready):  # type: ignore[misc]
                    pod.probe()
            for gateway in self.gateways:
                if gateway.gone:
                    with contextlib.suppress(OSError):
                        gateway.start()
                elif not gateway.up:
                    await asyncio.to_thread(gateway.look)

    async def healed(self) -> None:
        """Waits until every pod serves and every gateway knows it.

        Raises:
            TimeoutError: not within UP_S; what is missing is named.
        """
        wanted = len(self.pods)
        await self._until(lambda: all(pod.ready for pod in self.pods), "all pods")
        await self._until(lambda: all(one.up and one.targets() == wanted for one in self.gateways), "all routes")

    async def _until(self, done: Callable[[], bool], what: str, within_s: float = UP_S) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not await asyncio.to_thread(done):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            states = [f"{pod.name} gone={pod.gone} {pod.pair!s}" for pod in self.pods]
            told = [f"{gateway.name} gone={gateway.gone} {gateway.targets()}" for gateway in self.gateways]
            raise TimeoutError(f"{what}: not within {within_s:.0f} s; {states} {told}") from None

    async def leaks(self) -> dict[str, int]:
        """Slots, blocks and descriptors that are held though no stream runs; looks again until REST_S have passed."""
        found = {"unreadable": 1}
        end = asyncio.get_running_loop().time() + REST_S
        while any(found.values()) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(POLL_S)
            # A target that has just ended is still announced, and another takes its place.
            with contextlib.suppress(OSError, KeyError, ValueError, grpc.RpcError):
                found = await asyncio.to_thread(self._held)
        return found

    def _held(self) -> dict[str, int]:
        slots = blocks = 0.0
        for pod in self.pods:
            gauges = scrape(pod.pair.metrics_address)
            slots += gauges["paceline_running_requests"] + gauges["paceline_waiting_requests"]
            free = gauges["paceline_kv_blocks.free"] + gauges["paceline_kv_blocks.cached"]
            blocks += abs(self._blocks(pod) - free)
        return {"slots": int(slots), "blocks": int(blocks), "descriptors": self._descriptors()}

    def _blocks(self, pod: Pod) -> float:
        """All that the present target of a pod has."""
        pid = pod.pid("ray::TargetHost")
        if pid not in self._totals:
            self._totals[pid] = describe_target(pod.pair.target_address, SECRET).load.total_blocks
        return self._totals[pid]

    def _descriptors(self) -> int:
        """More than when each process was first at rest, grown up; `kept` says whose."""
        more = 0
        self.kept = []
        for pid, name in self.processes().items():
            with contextlib.suppress(OSError):
                now = footprint(pid).descriptors - workers_logs(pid)
                if pid not in self._first and age_s(pid) < GROWN_S:
                    continue
                first = self._first.setdefault(pid, now)
                if (added := now - first - KEPT_DESCRIPTORS) > 0:
                    self.kept.append(f"{name} {pid} had {first}, has {now}")
                    more += added
        return more

    def processes(self) -> dict[int, str]:
        """Names of all processes of ours by pid: where each runs and what it is."""
        found = {pid: f"{pod.name} {name_of(pid)}" for pod in self.pods for pid in pod.living()}
        for gateway in self.gateways:
            found |= {pid: f"{gateway.name} {name_of(pid)}" for pid in session_of(gateway.pid)}
        return {pid: name for pid, name in found.items() if not name.endswith(" ")}

    def logs(self) -> Mapping[str, str]:
        """What everything wrote, by the name of its file."""
        files = [
            file for disk in self.disks.values() for file in disk.folder.glob("*.*") if file.suffix in (".log", ".out")
        ]
        return {file.name: file.read_text(errors="replace") for file in files}

    async def stop(self) -> None:
        """Ends everything."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await asyncio.gather(*(gateway.close() for gateway in self.gateways))
        for pod in self.pods:
            await asyncio.to_thread(pod.stop)
        for disk in self.disks.values():
            disk.close()
