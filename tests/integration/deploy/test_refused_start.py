"""What the controller learns to be impossible only when Ray runs: one line, code 1, nothing left.

And Ray itself, on a machine that has other things to do: it starts, or that is told in one sentence.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from tests.integration.deploy.test_stack import processes_naming


def test_a_start_that_is_refused_ends_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver answers, so only Ray tells that there is no GPU."""
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho NVIDIA H200, 143771, 143000\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = [sys.executable, "-m", "deploy.cluster", "--model", str(EMBEDDED / "target"), "--proposer", "none"]
    # Short, because Ray's sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="pl-", ignore_cleanup_errors=True) as run_dir:
        command += ["--run-dir", run_dir, "--target.handoff", "flags"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "cluster: handoff: flags order the streams of a GPU"
    assert "Traceback" not in done.stderr
    assert not processes_naming(run_dir)


STARTS, BUSY = 20, 8
"""Starts one after another, and processes that take all of the time that they get."""
MOST = STARTS // 2 + 1
"""Starts that have to be made. Each is tried twice: where every third try fails, fewer are made once in 50,000 runs."""
SENTENCE = 400
"""Characters of what is told of a start that is not made."""
STARTS_RAY = """
import sys
from pathlib import Path
from deploy.cluster import environment
environment.prepare(Path(sys.argv[1]))
from deploy.cluster import runtime
try:
    runtime.start(Path(sys.argv[1]), 1)
except runtime.RayStartError as error:
    sys.exit(f"cluster: {error}")
runtime.stop()
"""


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Others that compute all the while."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.whole
@pytest.mark.timeout(STARTS * 120)
def test_ray_starts_or_is_told_in_one_sentence_beside_eight_busy_processes() -> None:
    started, told = 0, list[str]()
    with load(BUSY):
        for _ in range(STARTS):
            with tempfile.TemporaryDirectory(prefix="pl-", ignore_cleanup_errors=True) as run_dir:
                command = [sys.executable, "-c", STARTS_RAY, run_dir]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
                assert "Traceback" not in done.stderr and "^^" not in done.stderr, done.stderr
                assert not processes_naming(run_dir), "nothing is left"
            if done.returncode == 0:
                started += 1
                continue
            said = done.stderr.splitlines()[-1]
            assert (done.returncode, said[:26]) == (1, "cluster: Ray did not start"), done.stderr
            assert len(said) <= SENTENCE, said
            told.append(said)
    print(f"Ray started {started} times of {STARTS} beside {BUSY} busy processes; {told}")
    assert started >= MOST, told
