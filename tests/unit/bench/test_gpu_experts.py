"""The check and bench of experts runs on a CPU, and counts rows that differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Nehalem"}


@pytest.mark.whole
def test_it_checks_bits_on_a_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu.experts"],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout == "tiny: 17 checks of bits, 0 rows differ\n"
