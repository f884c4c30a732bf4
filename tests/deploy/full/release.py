"""A release of the chart on this machine: containers as processes, with the arguments that the chart renders."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.stack import EMBEDDED, ServiceProcess, StackError
from tests.deploy.full.charts import BASE, render, templates
from tests.deploy.test_values import merged
from tests.faults.rest import scrape
from tests.support.ports import free_ports

READY_S = 300.0
MODULES = {"gateway": "services.gateway", "worker": "deploy.cluster"}
SECRET = "of this release alone"
VALUES = {
    "model": {"path": "/models/target", "drafterPath": "/models/drafter", "name": "embedded"},
    "workers": {"gpusPerPod": 0, "slots": 8, "graceSeconds": 30, "env": {"PACELINE_ADAPTIVE": "false"}},
    "gateway": {"graceSeconds": 30, "env": {"PACELINE_REPORT_CACHED_TOKENS": "true"}},
}


class Release:
    """Worker and gateway pods, one process each; a pod keeps its ports over restarts, as its name does in a cluster."""

    def __init__(self, folder: Path, workers: int, gateways: int) -> None:
        """Chooses the ports; nothing runs yet."""
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.processes: dict[str, ServiceProcess] = {}
        self._starts = 0
        ports = iter(free_ports(6 * workers + 3 * gateways))
        self._ports = {f"worker-{i}": [next(ports) for _ in range(6)] for i in range(workers)}
        self._ports |= {f"gateway-{i}": [next(ports) for _ in range(3)] for i in range(gateways)}
        containers = [t["spec"]["containers"][0] for t in templates(render(merged(BASE, VALUES)))]
        self._arguments = {container["name"]: container["args"] for container in containers}
        self._variables = {container["name"]: given(container["env"]) for container in containers}

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of all pods, workers first."""
        return tuple(self._ports)

    def addresses(self, kind: str, port: int) -> list[str]:
        """Addresses of a kind of pods; port 0 is gRPC."""
        return [f"127.0.0.1:{found[port]}" for pod, found in self._ports.items() if pod.startswith(kind)]

    @property
    def scraped(self) -> list[tuple[str, list[str]]]:
        """What the PodMonitors scrape: (job, addresses)."""
        worker = [address for port in (2, 4, 5) for address in self.addresses("worker", port)]
        return [("llm-gateway", self.addresses("gateway", 2)), ("llm-worker", worker)]

    def gateway(self, name: str, *flags: str) -> dict[str, str]:
        """Starts one more gateway, with flags of its own; returns its addresses."""
        process = ServiceProcess(
            name, [MODULES["gateway"], *self._gateway_arguments(["0"] * 3), *flags], self.folder, {}
        )
        self.processes[name] = process
        return process.bound(READY_S)

    def start(self, pod: str) -> None:
        """Starts the container of a pod."""
        self._starts += 1
        kind, ports = pod.split("-")[0], [str(port) for port in self._ports[pod]]
        flags = self._worker_flags(pod, ports) if kind == "worker" else self._gateway_arguments(ports)
        name = f"{pod}.{self._starts}"
        self.processes[pod] = ServiceProcess(name, [MODULES[kind], *flags], self.folder, self._environment(kind))

    def _environment(self, kind: str) -> dict[str, str]:
        return {**self.environment, **self._variables[kind]}

    def _mounted(self, arguments: Sequence[str]) -> list[str]:
        """The arguments with what is mounted where it is on this machine."""
        secret = self.folder / "secret"
        secret.write_text(SECRET)
        return [
            argument.replace("/session/secret", str(secret)).replace("=/models/", f"={EMBEDDED}/")
            for argument in arguments
        ]

    def _worker_flags(self, pod: str, ports: Sequence[str]) -> list[str]:
        own = {"listen": ports[0], "health": ports[1], "metrics": ports[2]}
        flags = [
            argument.replace("worker-$(POD_IP)", pod).replace("$(POD_IP)", "127.0.0.1")
            for argument in self._mounted(self._arguments["worker"])
        ]
        flags += [f"--{name}=127.0.0.1:{port}" for name, port in own.items()]
        return [*flags, f"--base-port={ports[3]}", f"--run-dir={self.folder / pod[0]}{pod[-1]}"]

    def _gateway_arguments(self, ports: Sequence[str]) -> list[str]:
        """Pods are found by address instead of by the cluster's DNS."""
        flags = [
            argument for argument in self._mounted(self._arguments["gateway"]) if not argument.startswith("--watch-dns")
        ]
        flags += [f"--{name}=127.0.0.1:{port}" for name, port in zip(("grpc", "health", "metrics"), ports, strict=True)]
        return [*flags, f"--watch={','.join(self.addresses('worker', 0))}"]

    def gateway_ready(self, pod: str) -> bool:
        """A gateway sees every pair as ready."""
        try:
            gauges = scrape(f"127.0.0.1:{self._ports[pod][2]}")
        except OSError:
            return False
        return gauges.get("paceline_gateway_ready_targets") == len(self.addresses("worker", 0))

    def check(self) -> None:
        """Raises StackError when a process has ended."""
        for process in self.processes.values():
            process.check()

    def kill(self, actor: str) -> None:
        """Kills the oldest actor of a class; actors are found by the folder in their environment."""
        os.kill(
            min(int(each) for each in os.listdir("/proc") if each.isdigit() and self._is(actor, each)), signal.SIGKILL
        )

    def _is(self, actor: str, pid: str) -> bool:
        process = Path("/proc") / pid
        try:
            named = (process / "cmdline").read_bytes().startswith(f"ray::{actor}".encode())
            return named and str(self.folder).encode() in (process / "environ").read_bytes()
        except OSError:
            return False

    def stop(self) -> None:
        """Ends every process, all at the same time."""
        for process in self.processes.values():
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.stop(40.0)


@contextmanager
def running(workers: int, gateways: int, environment: Mapping[str, str] | None = None) -> Iterator[Release]:
    """A release whose every gateway sees every pair, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pl-"))
    release = Release(folder, workers, gateways)
    release.environment = dict(environment or {})
    try:
        for pod in release.pods:
            release.start(pod)
            if pod.startswith("worker"):
                # Two of Ray that start at once take each other's processor, and may choose the same port.
                release.processes[pod].bound(READY_S)
        for pod in release.pods:
            release.processes[pod].bound(READY_S)
        wait_routed(release)
        yield release
    finally:
        release.stop()
        shutil.rmtree(folder, ignore_errors=True)


def wait_routed(release: Release, within_s: float = READY_S) -> None:
    """Waits until every gateway sees every pair.

    Raises:
        StackError: a process ended, or the time is up.
    """
    end = time.monotonic() + within_s
    while not all(release.gateway_ready(pod) for pod in release.pods if pod.startswith("gateway")):
        release.check()
        if time.monotonic() > end:
            raise StackError("\n".join(process.tail() for process in release.processes.values()))
        time.sleep(0.2)


def given(env: list[dict[str, Any]]) -> dict[str, str]:
    """The settings among the variables of a container."""
    return {each["name"]: each["value"] for each in env if each["name"].startswith("PACELINE_")}
