"""The images without Docker: steps replayed into a folder, services started there as user 10001 on a read-only tree."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from paceline import Client, Options
from tests.deploy.full.images import Image, instructions, replay
from tests.deploy.test_drift import ROOT

USER = 10001
READY_S = 120.0
DOCKER = ROOT / "deploy/docker"


@contextmanager
def folder() -> Iterator[Path]:
    """A short folder, because Unix sockets lie below it; gone afterwards, whatever its permissions."""
    path = Path(tempfile.mkdtemp(prefix="pl-", dir="/tmp"))
    try:
        yield path
    finally:
        subprocess.run(["chmod", "-R", "u+w", path], check=True)
        shutil.rmtree(path)


@contextmanager
def started(image: Image, flags: list[str]) -> Iterator[dict[str, str]]:
    """Runs the entry point as the image's user with nothing writable but a folder for /tmp and HOME; its addresses."""
    assert image.user == f"{USER}:{USER}"
    subprocess.run(["chmod", "-R", "a-w", image.root], check=True)
    with folder() as writable:
        environment = {"PATH": os.environ["PATH"], "HOME": str(writable), "TMPDIR": str(writable)}
        environment |= {name: value.replace("$PATH", os.environ["PATH"]) for name, value in image.variables.items()}
        user = [] if os.getuid() else ["unshare", "--user", f"--map-user={USER}", f"--map-group={USER}"]
        flags = [flag.replace("$TMP", str(writable)) for flag in flags]
        output = writable / "out"
        with output.open("w") as out, (writable / "log").open("w") as log:
            process = subprocess.Popen(
                [*user, *image.entry, *flags], cwd=image.app, env=environment, stdout=out, stderr=log
            )
        try:
            yield addresses(process, output)
            assert stopped(process) == 0, (writable / "log").read_text()[-2000:]
        finally:
            process.kill()


def addresses(process: subprocess.Popen[bytes], output: Path) -> dict[str, str]:
    """The line in which a service says where it listens."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        if lines := [line for line in output.read_text().splitlines() if line.startswith("{")]:
            return dict(json.loads(lines[0]))
        time.sleep(0.1)
    raise AssertionError(output.with_name("log").read_text()[-3000:])


def stopped(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Image]:
    with folder() as root:
        yield replay(DOCKER / "gateway.Dockerfile", root)


@pytest.fixture(scope="module")
def worker() -> Iterator[Image]:
    """The worker with the packages of the present environment, because its own hold gigabytes for GPUs."""
    with folder() as root:
        yield replay(DOCKER / "worker.Dockerfile", root, packages=Path(sys.prefix))


def test_the_gateway_has_neither_torch_nor_ray(gateway: Image) -> None:
    installed = {path.name for path in (gateway.root / "opt/venv/lib").glob("python3*/site-packages/*")}
    assert {"grpc", "tokenizers", "opentelemetry"} <= installed
    assert not {"torch", "triton", "ray", "numpy", "cupy"} & installed
    assert not any(name.startswith(("services/target", "services/drafter", "deploy")) for name in gateway.copied())


def test_the_tree_is_read_only_for_the_user(gateway: Image) -> None:
    with started(gateway, ["--tokenizer", str(EMBEDDED / "target"), "--targets=127.0.0.1:1"]):
        as_user = [] if os.getuid() else ["unshare", "--user", f"--map-user={USER}"]
        done = subprocess.run([*as_user, "touch", gateway.app / "new"], capture_output=True, check=False)
    assert done.returncode != 0
    assert not list(gateway.app.rglob("__pycache__"))


def test_both_images_serve(gateway: Image, worker: Image) -> None:
    flags = [
        f"--model={EMBEDDED / 'target'}",
        f"--drafter={EMBEDDED / 'drafter'}",
        "--placement=cpu",
        "--adaptive=false",
        "--run-dir=$TMP/r",
    ]
    with started(worker, flags) as fleet:
        edge = ["--tokenizer", str(EMBEDDED / "target"), "--wait-target-s=120", f"--watch={fleet['grpc']}"]
        with started(gateway, edge) as bound, Client(bound["grpc"]) as client:
            result = client.generate("def add(a, b):\n", Options(max_tokens=16, ignore_eos=True))
    assert len(result.tokens) == 16
    assert result.accepted > 0
    assert not list(worker.app.rglob("__pycache__"))


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_only_the_base_comes_from_outside(name: str) -> None:
    steps = instructions(DOCKER / f"{name}.Dockerfile")
    assert [arguments for step, arguments in steps if step == "ARG"] == ["BASE=python:3.12-slim-bookworm"]
    assert {arguments.split()[0] for step, arguments in steps if step == "FROM"} == {"${BASE}"}
