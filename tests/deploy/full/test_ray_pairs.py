"""Two pairs by Ray on halves of one GPU, which is made up: what make test-gpu does on a real one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN_S = 500.0


@pytest.mark.timeout(RUN_S + 30)
def test_pairs_share_a_gpu_and_every_service_comes_back(tmp_path: Path) -> None:
    saved = tmp_path / "pairs.json"
    command = [sys.executable, "-m", "tests.integration.deploy.ray_pairs", "--device", "cpu", "--save", str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = json.loads(saved.read_text())
    assert found["pairs_per_gpu"] == 2
    assert {pair["sharing"] for pair in found["placed"]} == {"none"}
    assert [(kill["pair"], kill["service"]) for kill in found["kills"]] == [
        (f"pair-{index}", service) for index in (0, 1) for service in ("drafter", "target")
    ]
