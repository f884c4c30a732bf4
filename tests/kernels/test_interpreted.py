"""The GPU kernels against their references, by Triton's interpreter on the CPU.

In processes of their own, for Triton reads the switch when it is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.interpreter import INTERPRETED

ROOT = Path(__file__).parents[2]
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/kernels/gpu").glob("test_*.py"))
PARTS = 2  # that pytest-xdist may spread


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.xdist_group(f"part {part}")) for part in range(PARTS)]
)
def test_kernels_equal_their_references(part: int, full: bool) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *FILES[part::PARTS]]
    command += ["--full"] if full else []
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **INTERPRETED},
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
