"""Debian's Prometheus: promtool, and a server on a free port of this machine."""

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.full.charts import NAMESPACE
from tests.deploy.test_drift import ROOT
from tests.support.ports import free_port

UNPACKED = Path(sys.prefix) / "prometheus/usr/bin"
START_S = 120.0


def tool(name: str) -> str:
    """Path of prometheus or promtool, installed or unpacked by tools.sh."""
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    assert found, f"{name} is missing: run make test-deploy"
    return found


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False)


class Prometheus:
    """A running server; times are seconds since the epoch."""

    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expression: str, at: float = 0.0) -> list[dict[str, Any]]:
        """The samples of an expression at a time, now if it is 0.

        Raises:
            urllib.error.HTTPError: the expression is refused.
        """
        moment = {"time": at} if at else {}
        return list(self._get("query", query=expression, **moment)["result"])

    def range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The series of an expression."""
        return list(self._get("query_range", query=expression, start=start, end=end, step=step)["result"])

    def groups(self) -> list[dict[str, Any]]:
        """Rule groups with the health of each rule."""
        return list(self._get("rules")["groups"])

    def targets(self) -> list[dict[str, Any]]:
        """What is scraped."""
        return list(self._get("targets")["activeTargets"])

    def _get(self, path: str, **parameters: object) -> dict[str, Any]:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as page:
            return dict(json.load(page)["data"])


@contextmanager
def serving(folder: Path, scraped: Sequence[tuple[str, list[str]]]) -> Iterator[Prometheus]:
    """A server that evaluates our rules and scrapes (job, addresses) every second."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy/prometheus/rules.yaml")],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": found, "labels": {"namespace": NAMESPACE}}]}
            for job, found in scraped
        ],
    }
    with _running(folder, config) as prometheus:
        yield prometheus


@contextmanager
def remembering(folder: Path, history: str) -> Iterator[Prometheus]:
    """A server that has scraped nothing and holds a history, in OpenMetrics' text with times."""
    text = folder / "history.txt"
    text.write_text(history)
    made = promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", text, folder / "tsdb")
    assert made.returncode == 0, made.stdout + made.stderr
    with _running(folder, {"scrape_configs": []}) as prometheus:
        yield prometheus


@contextmanager
def _running(folder: Path, config: dict[str, Any]) -> Iterator[Prometheus]:
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    assert promtool("check", "config", path).returncode == 0
    address = f"127.0.0.1:{free_port()}"
    command = [tool("prometheus"), f"--config.file={path}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        _wait_ready(address, folder / "prometheus.log")
        yield Prometheus(address)
    finally:
        process.terminate()
        process.wait(30)


def _wait_ready(address: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])
