"""What the controller learns to be impossible only when Ray runs: one line, code 1, nothing left."""

import os
import subprocess
import sys
import tempfile
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
