"""The wheel in a virtual environment of its own: it serves from any folder, and nobody's `services` is in its way.

The packages that it needs are those of this environment, by a path file; `pip install` of them is not tested here.
"""

import os
import re
import signal
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.wheel import build_wheel

READY_S = 240.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of the environment."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    wheel = build_wheel(tmp_path_factory.mktemp("dist"))
    python = folder / "bin/python"
    options = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    subprocess.run([str(python), "-m", "pip", "install", *options, str(wheel)], check=True, timeout=120)
    return folder / "bin"


@pytest.fixture(params=["root", "a folder with services and deploy of its own"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "root":
        return Path("/")
    for name in ("services", "deploy", "models"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('somebody else is imported')\n")
    return tmp_path


def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "120"}


def run(program: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [str(program), *words], cwd=folder, env=environ(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(program: Path, folder: Path, output: Path) -> Iterator[str]:
    """A gateway's address; Ctrl-C ends it in good order."""
    began = time.monotonic()
    with output.open("wb") as sink:
        words = [str(program), "serve", "embedded", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        process = subprocess.Popen(words, cwd=folder, env=environ(), stdout=sink, stderr=subprocess.STDOUT)
    try:
        while "ready;" not in output.read_text():
            assert process.poll() is None and time.monotonic() - began < READY_S, output.read_text()
            time.sleep(0.05)
        found = re.search(r"^gateway +(\S+)", output.read_text(), re.MULTILINE)
        assert found
        yield found[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(30.0) == 0
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a server in good order, if it runs: killed, it would leave its Ray behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def test_the_base_needs_no_service(installed: Path) -> None:
    check = "import sys, paceline, paceline.commands.chat; print(*sys.modules)"
    loaded = run(installed / "python", Path("/"), "-c", check).split()
    assert not {"services", "deploy", "torch", "ray", "numpy"} & set(loaded)


def test_it_serves_from_any_folder(installed: Path, folder: Path, tmp_path: Path) -> None:
    program = installed / "paceline"
    with serving(program, folder, tmp_path / "output") as address:
        where = f"--address={address}"
        assert "tokens in" in run(program, folder, "generate", where, "--max-tokens", "16", "def main():")
        assert "paceline-embedded: 1 of 1 pairs ready" in run(program, folder, "status", where)
        levels = ("--concurrency", "1,2", "--requests", "2", "--max-tokens", "8", "--png", str(tmp_path / "bench.png"))
        run(program, folder, "bench", address, *levels)
        assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
        assert f"paceline chat {where.replace('=', ' ')}" in (tmp_path / "output").read_text()
    assert "ok   packages" in run(program, folder, "doctor")
