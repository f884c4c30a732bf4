"""A target and its drafters as real processes on the made-up model."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.stack import ServiceProcess
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.serving.channel import connect_sync
from tests.support.tiny_checkpoints import TinyPair
from tests.support.warm import WarmProcess

WAIT_S = 240.0
Status = int
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


class PairProcesses:
    """One target whose drafter's address is a link that can be turned to another drafter process."""

    def __init__(
        self,
        folder: Path,
        models: TinyPair,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] = ENVIRONMENT,
        drafter_flags: Sequence[str] = (),
        address: str = "",
        module: str = "services.target",
    ) -> None:
        """Starts the target and its first drafter; neither is ready yet. ``folder`` must have a short path.

        With the ``address`` of a drafter that runs elsewhere none is started.
        """
        self.folder = folder
        self._models = models
        self._drafter_flags = drafter_flags
        self._link = folder / "drafter.sock"
        self.drafters: list[ServiceProcess] = []
        if not address:
            self.add_drafter()
            self.turn_to(0)
        command = [module, "--model", str(models.target), "--drafter-model", str(models.drafter)]
        command += ["--drafter-address", address or f"unix:{self._link}", "--run-dir", str(folder), "--threads", "1"]
        command += ["--adaptive", "false", "--watchdog-s", "20", "--propagation-s", "0.1", *flags]
        self.target = WarmProcess("target", command, folder, environment)
        self.bound: dict[str, str] = {}

    def add_drafter(self) -> int:
        """Starts another drafter process and returns its number."""
        number = len(self.drafters)
        command = ["services.drafter", "--model", str(self._models.drafter), "--grpc", f"unix:{self.folder}/d{number}"]
        command += self._drafter_flags
        self.drafters.append(WarmProcess(f"drafter-{number}", command, self.folder, ENVIRONMENT))
        return number

    def turn_to(self, number: int) -> None:
        """The target finds this drafter the next time it connects."""
        fresh = self.folder / "fresh"
        fresh.symlink_to(self.folder / f"d{number}")
        fresh.replace(self._link)
        self.drafter = self.drafters[number]

    def kill_drafter(self, number: int) -> None:
        """SIGKILL."""
        self.drafters[number].process.send_signal(signal.SIGKILL)
        self.drafters[number].process.wait()

    def wait_ready(self, within_s: float = WAIT_S) -> None:
        """Waits until the target is SERVING."""
        self.bound = self.target.bound(within_s)
        self.wait_health(health_pb2.HealthCheckResponse.SERVING, within_s)

    def wait_health(self, status: Status, within_s: float = WAIT_S) -> None:
        """Waits for a health status."""
        self.until(lambda: self.health() == status, f"health {status}", within_s)

    def health(self, service: str = "") -> Status:
        """Health now; UNKNOWN when nobody answers."""
        with connect_sync(self.bound["health"]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                return int(stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=2.0).status)
            except grpc.RpcError:
                return int(health_pb2.HealthCheckResponse.UNKNOWN)

    def describe(self) -> pb.TargetServiceDescribeResponse:
        """The target's state."""
        with connect_sync(self.bound["grpc"]) as channel:
            return rpc.TargetServiceStub(channel).Describe(
                pb.TargetServiceDescribeRequest(protocol_version=1), timeout=WAIT_S
            )

    def wait_attached(self, generation: int) -> pb.TargetServiceDescribeResponse:
        """Waits until a drafter of at least this generation is attached."""
        self.until(lambda: self.describe().generation >= generation, f"generation {generation}")
        return self.describe()

    def until(self, done: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
        """Polls; fails with the target's log."""
        end = time.monotonic() + within_s
        while not done():
            self.target.check()
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {within_s} s\n{self.target.tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends everything."""
        for process in (self.target, *self.drafters):
            process.stop(0.0)
