"""A controller that joins a Ray which others started, as in a RayCluster: head without pairs, workers with one each."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED, REPOSITORY, ServiceProcess
from paceline import Client, Options
from tests.deploy.full.release import READY_S, free_ports

RAY = Path(sys.executable).parent / "ray"
LEAVE_S = "20"


@contextmanager
def nodes(folder: Path, workers: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Starts nodes as the operator does; gives Ray's address and what every container has in its environment."""
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "PYTHONPATH": str(REPOSITORY),
    }
    port = free_ports(1)[0]
    size = "--object-store-memory=80000000"
    head = ["--head", f"--port={port}", "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false", size]
    worker = [f"--address=127.0.0.1:{port}", "--num-gpus=0", '--resources={"paceline_pair": 1}', size]
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(_node(flags, environment, folder) for flags in [head, *[worker] * workers])
        yield f"127.0.0.1:{port}", environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def _node(flags: list[str], environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "nodes.log").open("ab") as log:
        command = [str(RAY), "start", "--block", "--disable-usage-stats", *flags]
        return subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)


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
                    left = [sys.executable, "-m", "deploy.cluster.leave", str(run_dir / "pair-0"), LEAVE_S]
                    assert subprocess.run(left, cwd=REPOSITORY, check=False, timeout=60).returncode == 0
                    assert not (run_dir / "pair-0/serving").exists()
                finally:
                    gateway.stop()
            finally:
                assert cluster.stop(60.0) == 0
