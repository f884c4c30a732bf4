"""The scripts that show exactness through Ray and a gateway, at a size for a CPU: no text differs, none fails."""

import subprocess
import sys

import pytest

END_S = 900
pytestmark = pytest.mark.timeout(END_S + 60)


@pytest.mark.parametrize("stage", ["pair", "kills"])
def test_texts_through_ray_are_the_same(stage: str) -> None:
    command = [sys.executable, "-m", "tests.bench.gpu.exact", stage, "--tiny"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=END_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert " 0 differ" in done.stdout.splitlines()[-1]
