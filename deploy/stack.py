"""paceline on one machine: the cluster process and gateways, started and stopped together."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from deploy.cluster import derived
from deploy.cluster.settings import ClusterSettings
from services.common import settings
from services.common.limits import PROTOCOL_VERSION
from services.common.pb.paceline.v1 import fleet_pb2, fleet_pb2_grpc, target_pb2, target_pb2_grpc
from services.gateway.settings import GatewaySettings

REPOSITORY = Path(__file__).resolve().parents[1]
EMBEDDED = REPOSITORY / "models" / "embedded"


class StackError(RuntimeError):
    """The stack did not come up; the message holds the end of the log at fault."""


@dataclass(frozen=True)
class StackSettings:
    """What to start."""

    model: str = str(EMBEDDED / "target")
    drafter: str = str(EMBEDDED / "drafter")
    proposer: str = "dflash"
    model_name: str = "paceline-embedded"
    pairs: int = 1
    gateways: int = 1
    gateway_address: str = "127.0.0.1:0"
    ready_s: float = 180.0
    cluster_flags: Sequence[str] = ()
    gateway_flags: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class ServiceProcess:
    """One service as a child process; its first line of output tells the addresses."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        run_dir: Path,
        environment: Mapping[str, str],
        foreign: Collection[str] = (),
    ) -> None:
        self.name = name
        self.log = run_dir / f"{name}.log"
        self._lines = run_dir / f"{name}.out"
        with self.log.open("ab") as errors, self._lines.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=REPOSITORY,
                env={key: value for key, value in {**os.environ, **environment}.items() if key not in foreign},
                start_new_session=True,
            )

    def bound(self, timeout_s: float) -> dict[str, str]:
        """Waits for the line of addresses.

        Raises:
            StackError: when the process ends or the time passes before it.
        """
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for line in self._lines.read_text(errors="replace").splitlines():
                if line.startswith("{") and '"grpc"' in line:
                    return dict(json.loads(line))
            self.check()
            time.sleep(0.05)
        raise StackError(f"{self.name} gave no address within {timeout_s:.0f} s\n{self.tail()}")

    def check(self) -> None:
        """Raises StackError when the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise StackError(f"{self.name} ended with code {code}\n{self.tail()}")

    def tail(self, characters: int = 3000) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-characters:]

    def stop(self, timeout_s: float = 30.0) -> int:
        """Ends the process by SIGTERM, after timeout_s by SIGKILL of its group; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.process.wait()


class Stack:
    """Context manager: inside it, a gateway answers and at least one pair is ready."""

    def __init__(self, chosen: StackSettings, progress: Callable[[str], None] = lambda line: None) -> None:
        self.settings = chosen
        self.run_dir = Path(tempfile.mkdtemp(prefix="paceline-"))
        self.processes: list[ServiceProcess] = []
        self._progress = progress
        self.fleet_address = ""
        self.gateway_addresses: tuple[str, ...] = ()
        self.gateway_metrics: tuple[str, ...] = ()

    @property
    def gateway_address(self) -> str:
        """Address of the first gateway."""
        return self.gateway_addresses[0]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        flags = self._cluster_flags()
        self._check(flags)
        self._progress("starting Ray and the controller")
        cluster = self._launch("cluster", ["deploy.cluster", *flags], self._foreign(ClusterSettings, GatewaySettings))
        gateways_wait = self.settings.ready_s
        self.fleet_address = cluster.bound(gateways_wait)["grpc"]
        self._progress("starting the gateway")
        bounds = [self._gateway(index).bound(gateways_wait) for index in range(self.settings.gateways)]
        self.gateway_addresses = tuple(bound["grpc"] for bound in bounds)
        self.gateway_metrics = tuple(bound["metrics"] for bound in bounds)
        self._progress("waiting for the pair: weights, warm-up, drafter")
        self.wait_ready(self.settings.ready_s)

    def _check(self, flags: Sequence[str]) -> None:
        """Ends this process with code 2 and one line when the controller would refuse its settings."""
        foreign = self._foreign(ClusterSettings, GatewaySettings)
        environ = {name: value for name, value in self._environment.items() if name not in foreign}
        settings.load(ClusterSettings, flags, environ, derived.check)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.settings.environment}

    def _foreign(
        self, of: type[ClusterSettings | GatewaySettings], other: type[ClusterSettings | GatewaySettings]
    ) -> set[str]:
        """Variables that only the other service knows: whoever reads one that it does not know refuses to start."""
        return settings.unknown(of, self._environment) - settings.unknown(other, self._environment)

    def _launch(self, name: str, command: Sequence[str], foreign: Collection[str]) -> ServiceProcess:
        process = ServiceProcess(name, command, self.run_dir, self.settings.environment, foreign)
        self.processes.append(process)
        return process

    def _cluster_flags(self) -> list[str]:
        s = self.settings
        cluster_dir = self.run_dir / "c"
        cluster_dir.mkdir(mode=0o700)
        flags = ["--model", s.model, "--proposer", s.proposer, "--model-name", s.model_name]
        flags += ["--drafter", s.drafter] if s.proposer == "dflash" else []
        return [*flags, "--pairs", str(s.pairs), "--run-dir", str(cluster_dir), *s.cluster_flags]

    def _gateway(self, index: int) -> ServiceProcess:
        s = self.settings
        address = s.gateway_address if index == 0 else "127.0.0.1:0"
        flags = ["--watch", self.fleet_address, "--tokenizer", s.model, "--grpc", address]
        flags += ["--model", s.model_name, *s.gateway_flags]
        foreign = self._foreign(GatewaySettings, ClusterSettings)
        return self._launch(f"gateway-{index}", ["services.gateway", *flags], foreign)

    def pairs(self) -> list[fleet_pb2.Pair]:
        """The pairs as the controller announces them now."""
        with grpc.insecure_channel(self.fleet_address) as channel:
            watch = fleet_pb2_grpc.FleetServiceStub(channel).Watch(
                fleet_pb2.WatchRequest(protocol_version=1), timeout=10, wait_for_ready=True
            )
            first = next(watch)
            watch.cancel()
        return list(first.pairs)

    def wait_ready(self, timeout_s: float) -> None:
        """Waits until every pair is ready.

        Raises:
            StackError: when a process ends or the time passes before that.
        """
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for process in self.processes:
                process.check()
            pairs = self.pairs()
            if len(pairs) == self.settings.pairs and all(p.state == fleet_pb2.PAIR_STATE_READY for p in pairs):
                return
            time.sleep(0.2)
        tails = "\n".join(f"{process.name}:\n{process.tail()}" for process in self.processes)
        raise StackError(f"no ready pair within {timeout_s:.0f} s\n{tails}\n{self.actor_logs()}")

    def actor_logs(self, characters: int = 4000) -> str:
        """The end of what the actors wrote."""
        logs = sorted(self.run_dir.glob("c/ray/session_*/logs/worker-*.err"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-characters:]}" for log in logs)

    def stop(self) -> None:
        """Stops every process and removes the run folder."""
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.run_dir, ignore_errors=True)


def describe_target(address: str) -> target_pb2.TargetServiceDescribeResponse:
    """What a target tells of itself.

    Raises:
        grpc.RpcError: it does not answer.
    """
    asked = target_pb2.TargetServiceDescribeRequest(protocol_version=PROTOCOL_VERSION)
    with grpc.insecure_channel(address) as channel:
        told: target_pb2.TargetServiceDescribeResponse
        told = target_pb2_grpc.TargetServiceStub(channel).Describe(asked, timeout=30.0)
    return told
