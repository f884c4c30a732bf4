"""Two pairs placed by Ray on one real GPU, or on two: both services of each see the same one, and come back from kills.

What was found is saved under build/; RAY_PAIRS names another folder.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.gpu.devices import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
ROOT = Path(__file__).resolve().parents[2]
RUN_S = 560.0


@pytest.mark.timeout(RUN_S + 30)
@pytest.mark.parametrize("mps", ["auto", "false"])
def test_pairs_share_a_gpu_and_every_service_comes_back(mps: str) -> None:
    saved = Path(os.environ.get("RAY_PAIRS", ROOT / "build")) / f"ray_pairs_mps_{mps}.json"
    command = [sys.executable, "-m", "tests.integration.deploy.ray_pairs", "--mps", mps, "--save", str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = json.loads(saved.read_text())
    assert not any(gpu.startswith("ray-gpu") for pair in found["placed"] for gpu in pair["target"])
    assert len(found["kills"]) == 4
    if mps == "false":
        assert {pair["sharing"] for pair in found["placed"]} == {"timeslice"}
