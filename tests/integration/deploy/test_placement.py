"""Target and drafter of a pair share one GPU, after restarts too: fake GPUs, real Ray."""

import subprocess
import sys


def test_pairs_never_straddle_gpus() -> None:
    command = [sys.executable, "-m", "tests.integration.deploy.placement"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "placement ok" in done.stdout
