"""The checks and benches of experts, and of those in FP8, run on a CPU, and count rows that differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.interpreter import INTERPRETED

ROOT = Path(__file__).parents[3]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("bench", "checks"), [("experts", {"tiny": 17, "tiny rated": 17}), ("coded_experts", {"tiny": 4})]
)
def test_it_checks_bits_on_a_cpu(bench: str, checks: dict[str, int]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.gpu.{bench}"],
        cwd=ROOT,
        env={**os.environ, **INTERPRETED},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = [f"{shape}: {count} checks of bits, 0 rows differ\n" for shape, count in checks.items()]
    assert done.stdout == "".join(lines)
