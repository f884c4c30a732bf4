"""Two pods of the chart's workers and a gateway, as processes, and for each pod what the kubelet does."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.fleet import Fleet
from deploy.stack import EMBEDDED, ServiceProcess
from services.common.pb.paceline.v1 import fleet_pb2, inference_pb2_grpc
from services.common.serving.channel import connect
from services.common.serving.process import end_session, name_of
from tests.faults.answers import Answer, Stream, request
from tests.faults.rest import scrape
from tests.support.chart_worker import ARGUMENTS, LIVENESS
from tests.support.ports import free_ports
from tests.support.warm import WarmProcess

READY_S = 150.0
SERVING = health_pb2.HealthCheckResponse.SERVING
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


class Pod:
    """A worker's container, which keeps its address over restarts; `ended` says why the kubelet ended it."""

    def __init__(self, folder: Path, name: str, ports: Sequence[int]) -> None:
        self.folder, self.name = folder, name
        self.address, self._health = (f"127.0.0.1:{port}" for port in ports[:2])
        self._base_port = ports[2]
        self._starts = 0
        self.ended = ""
        self.process: ServiceProcess | None = None
        self._stopped = threading.Event()
        self._fleet: Fleet | None = None
        self._kubelet: threading.Thread | None = None

    def start(self, environment: Mapping[str, str], module: str = "deploy.cluster") -> None:
        """Starts the container."""
        self._starts += 1
        self.ended = ""
        name = f"{self.name}.{self._starts}"
        self.process = ServiceProcess(
            name, [module, *self._flags()], self.folder, {**ENVIRONMENT, "PACELINE_ADAPTIVE": "false", **environment}
        )
        self._fleet = Fleet(self.address)
        self._stopped = threading.Event()
        self._kubelet = threading.Thread(target=self._probe, args=(self.process, self._stopped), daemon=True)

    def _flags(self) -> list[str]:
        """The chart's arguments, with what differs where many pods share one machine."""
        given = {
            "--model=/models/target": f"--model={EMBEDDED / 'target'}",
            "--drafter=/models/drafter": f"--drafter={EMBEDDED / 'drafter'}",
            "--base-port=50061": f"--base-port={self._base_port}",
            "--listen=0.0.0.0:50050": f"--listen={self.address}",
            "--health=0.0.0.0:50052": f"--health={self._health}",
            "--pair-prefix=llm-worker-$(POD_IP)-": f"--pair-prefix=llm-worker-{self.name}-",
            "--metrics=0.0.0.0:9100": "--metrics=127.0.0.1:0",
            "--run-dir=/tmp/paceline": f"--run-dir={self.folder / self.name}",
            "--session-secret-file=/session/secret": f"--session-secret-file={self.folder / 'secret'}",
        }
        return [given.get(argument, argument).replace("$(POD_IP)", "127.0.0.1") for argument in ARGUMENTS]

    @property
    def pair(self) -> fleet_pb2.Pair:
        """The pod's one pair as it was announced last."""
        return self._fleet.pairs[0] if self._fleet and self._fleet.pairs else fleet_pb2.Pair()

    @property
    def ready(self) -> bool:
        """The pair serves, with its drafter."""
        return self.pair.state == fleet_pb2.PAIR_STATE_READY and self._gauge("paceline_drafter_attached") == 1

    @property
    def served_again(self) -> bool:
        """The pair serves after a restart, of its target or of its drafter, which the target has attached anew."""
        again = self.pair.target_restarts or self._gauge("paceline_attachment_generation") > 1
        return not self.gone and bool(again) and self.ready

    def _gauge(self, name: str) -> float:
        try:
            return scrape(self.pair.metrics_address).get(name, 0.0)
        except (OSError, ValueError):
            return 0.0

    @property
    def gone(self) -> bool:
        """The container has ended."""
        return self.process is not None and self.process.process.poll() is not None

    @property
    def probed(self) -> bool:
        """The kubelet looks after this container."""
        return self._kubelet is not None and self._kubelet.ident is not None

    def probe(self) -> None:
        """Lets the kubelet look after it from here on: the pod has been ready."""
        assert self._kubelet is not None
        self._kubelet.start()

    def _probe(self, process: ServiceProcess, stopped: threading.Event) -> None:
        """Ends the container when it has failed its liveness probe too often."""
        failed = 0
        while not stopped.wait(LIVENESS.period_s):
            failed = 0 if self._lives() else failed + 1
            if failed == LIVENESS.failures:
                self.ended = "liveness"
                process.stop(LIVENESS.grace_s)
                return

    def _lives(self) -> bool:
        with grpc.insecure_channel(self._health) as channel:
            ask = health_pb2.HealthCheckRequest(service="liveness")
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(ask, timeout=LIVENESS.timeout_s)
            except grpc.RpcError:
                return False
        return bool(answer.status == SERVING)

    @property
    def leader(self) -> int:
        """The container's first process."""
        assert self.process is not None
        return self.process.process.pid

    def pid(self, name: str) -> int:
        """The process of the pod with a name, of which the kernel keeps 15 characters."""
        (found,) = (pid for pid in self.living() if name_of(pid) == name[:15])
        return found

    def living(self) -> list[int]:
        """Processes of the container."""
        return session_of(self.leader)

    def lines(self) -> list[dict[str, Any]]:
        """What `kubectl logs` shows; every line of it is JSON."""
        name = f"{self.name}.{self._starts}"
        texts = [(self.folder / f"{name}.{stream}").read_text() for stream in ("out", "log")]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def stop(self) -> None:
        """Ends the container and the kubelet's thread."""
        self._stopped.set()
        if self.process is not None:
            end_session(self.process.process.pid)
            self.process.process.wait()
        if self._kubelet is not None and self._kubelet.ident is not None:
            self._kubelet.join()
        if self._fleet is not None:
            self._fleet.close()
        self._fleet = self._kubelet = None


class Pods:
    """A victim, a pod beside it, and a gateway in front of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "secret").write_text("of this test alone")
        ports = free_ports(10)
        self.victim, self.other = Pod(folder, "v", ports[:5]), Pod(folder, "o", ports[5:])
        self.gateway: ServiceProcess | None = None
        self.metrics = ""
        self.stub: Any = None

    async def restart_victim(self, environment: Mapping[str, str], module: str = "deploy.cluster") -> None:
        """Starts the victim's container anew, and waits until the gateway sends requests to it."""
        await asyncio.to_thread(self.victim.stop)
        self.victim.start(environment, module)
        await self.until(lambda: self.victim.gone or (self.victim.ready and self.ready_targets() == 2), READY_S)
        assert self.victim.process is not None
        self.victim.process.check()
        self.victim.probe()

    def ready_targets(self) -> float:
        """As the gateway sees it."""
        return scrape(self.metrics).get("paceline_gateway_ready_targets", 0.0)

    async def until(self, done: Any, within_s: float) -> None:
        """Polls in a thread, for done may block."""
        async with asyncio.timeout(within_s):
            while not await asyncio.to_thread(done):
                await asyncio.sleep(0.05)

    async def ask(self, number: int, tokens: int) -> Answer:
        """The answer of a request."""
        answer = Answer()
        await self._read(answer, number, tokens)
        return answer

    async def begin(self, number: int, tokens: int) -> Stream:
        """A stream that has begun."""
        answer = Answer()
        task = asyncio.create_task(self._read(answer, number, tokens))
        while not answer.tokens and not task.done():
            await asyncio.sleep(0.01)
        return Stream(answer, task)

    async def _read(self, answer: Answer, number: int, tokens: int) -> Answer:
        try:
            async for response in self.stub.Generate(request(number, tokens), timeout=READY_S):
                answer.take(response)
        except grpc.RpcError as error:
            answer.code = error.code()
        return answer

    def stop(self) -> None:
        """Ends everything."""
        for pod in (self.victim, self.other):
            pod.stop()
        if self.gateway is not None:
            self.gateway.stop(0.0)
        for pid in _daemons_below(self.folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


@asynccontextmanager
async def running_pods(environment: Mapping[str, str]) -> AsyncIterator[Pods]:
    """A pod that serves, a gateway, and a victim that is yet to be started."""
    pods = Pods(Path(tempfile.mkdtemp(prefix="pl-")))
    try:
        pods.other.start(environment)
        watch = f"--watch={pods.victim.address},{pods.other.address}"
        flags = [watch, "--tokenizer", str(EMBEDDED / "target"), "--model=embedded"]
        flags += [f"--target-secret-file={pods.folder / 'secret'}", "--propagation-s=0.1"]
        pods.gateway = WarmProcess("gateway", ["services.gateway", *flags], pods.folder, ENVIRONMENT)
        bound = await asyncio.to_thread(pods.gateway.bound, READY_S)
        pods.metrics = bound["metrics"]
        await pods.until(lambda: pods.other.ready and pods.ready_targets() == 1, READY_S)
        async with connect(bound["grpc"]) as channel:
            pods.stub = inference_pb2_grpc.InferenceServiceStub(channel)
            yield pods
    finally:
        await asyncio.to_thread(pods.stop)


def session_of(leader: int) -> list[int]:
    """Processes that live in the session of one."""
    pids = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _session(pid) == leader]


def _session(pid: int) -> int:
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return 0
    return 0 if state in "ZX" else int(session)


def _daemons_below(folder: Path) -> list[int]:
    """The stand-ins of MPS daemons that a victim has left, for they leave its session."""
    found = subprocess.run(["pgrep", "-f", f"{folder}/"], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]
