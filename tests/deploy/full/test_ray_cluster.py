"""A controller that joins a Ray which others started, as in a RayCluster: head without pairs, workers with one each."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED, REPOSITORY, ServiceProcess
from paceline import Client, Options
from services.common.serving.process import end_session
from tests.deploy.full.release import READY_S
from tests.support.ports import free_ports

RAY = Path(sys.executable).parent / "ray"
LEAVE_S = "20"


NODE_S, STOP_S = 150.0, 60.0
# What one node listens on, each under a flag of its own, and then the ports of its workers.
PORTS = (
    "node-manager-port",
    "object-manager-port",
    "runtime-env-agent-port",
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
)
WORKERS = 24


@contextmanager
def nodes(folder: Path, workers: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Starts nodes as the operator does; gives Ray's address and what every container has in its environment.

    One after another, each with ports of its own: nodes of one host that choose theirs at the same moment meet.
    """
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_task_events_report_interval_ms": "0",
        "PYTHONPATH": str(REPOSITORY),
    }
    each = len(PORTS) + WORKERS
    ports = free_ports(2 + each * (1 + workers))
    gcs, client = ports[:2]
    size = "--object-store-memory=80000000"
    head = ["--head", f"--port={gcs}", f"--ray-client-server-port={client}", "--num-cpus=0", "--num-gpus=0"]
    head += ["--include-dashboard=false", size]
    worker = [f"--address=127.0.0.1:{gcs}", "--num-gpus=0", '--resources={"paceline_pair": 1}', size]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, flags in enumerate([head, *[worker] * workers]):
            own = ports[2 + number * each :][:each]
            started.append(_node(number, [*flags, *_listening(own)], environment, folder))
        yield f"127.0.0.1:{gcs}", environment
    finally:
        for process in reversed(started):
            process.terminate()
        end = time.monotonic() + STOP_S
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            end_session(process.pid)
            process.wait(STOP_S)


def _listening(ports: list[int]) -> list[str]:
    named = [f"--{name}={port}" for name, port in zip(PORTS, ports, strict=False)]
    return [*named, f"--min-worker-port={ports[len(PORTS)]}", f"--max-worker-port={ports[-1]}"]


def _node(number: int, flags: list[str], environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Starts one node and waits until it runs; nothing of it is left when it does not."""
    path = folder / f"node-{number}.log"
    command = [str(RAY), "start", "--block", "--disable-usage-stats", *flags]
    with path.open("wb") as log:
        # A session of its own, by which all that it starts is found.
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=log, start_new_session=True
        )
    end = time.monotonic() + NODE_S
    while "Ray runtime started" not in path.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > end:
            end_session(process.pid)
            process.wait(STOP_S)
            raise AssertionError(f"node {number} does not start: {path.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)
    return process


@pytest.mark.timeout(400)
def test_pairs_land_on_the_worker_nodes_and_leave_them_drained() -> None:
    with tempfile.TemporaryDirectory(prefix="pl-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with nodes(folder, 2) as (address, environment):
            run_dir = folder / "r"
            flags = [f"--model={EMBEDDED / 'target'}", f"--drafter={EMBEDDED / 'drafter'}", "--placement=cpu"]
            flags += [
                "--pairs=2",
                "--host=auto",
                "--session-secret=of this test alone",
                f"--ray-address={address}",
                f"--run-dir={run_dir}",
                "--adaptive=false",
                "--slots=2",  # few steps to prepare: what is shown here is where pairs land
                "--target.widths=1,8",
            ]
            cluster = ServiceProcess("cluster", ["deploy.cluster", *flags], folder, environment)
            edge = ["services.gateway", "--tokenizer", str(EMBEDDED / "target"), "--wait-target-s=120"]
            edge += ["--target-secret=of this test alone"]
            try:
                watch = f"--watch={cluster.bound(READY_S)['grpc']}"
                gateway = ServiceProcess("gateway", [*edge, watch], folder, {})
                try:
                    with Client(gateway.bound(READY_S)["grpc"]) as client:
                        result = client.generate("def add(a, b):\n", Options(max_tokens=32, ignore_eos=True))
                    assert len(result.tokens) == 32
                    _every_line_is_forwarded(folder)
                    left = [sys.executable, "-m", "deploy.cluster.leave", str(run_dir / "pair-0"), LEAVE_S]
                    assert subprocess.run(left, cwd=REPOSITORY, check=False, timeout=60).returncode == 0
                    assert not (run_dir / "pair-0/serving").exists()
                finally:
                    gateway.stop()
            finally:
                assert cluster.stop(60.0) == 0


def _every_line_is_forwarded(folder: Path) -> None:
    """What the pairs on other nodes log is on the controller's stdout, as JSON without a mark of Ray."""
    end = time.monotonic() + STOP_S
    while time.monotonic() < end:
        lines = [json.loads(line) for line in (folder / "cluster.out").read_text().splitlines()]
        planned = {line.get("pair") for line in lines if line.get("message") == "memory planned"}
        if planned == {"pair-0", "pair-1"}:
            return
        time.sleep(0.2)
    raise AssertionError(f"lines of {planned} alone")
