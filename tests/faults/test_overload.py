"""L2: three times the capacity, in an open loop. Refusals are prompt, and what gets in uses the capacity."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.faults.conftest import Size


@pytest.mark.whole
@pytest.mark.alone
def test_l2_overload_is_refused_promptly(size: Size, report_counts: Callable[[str, int], None]) -> None:
    """Two runs of three hold the bars of the benchmark."""
    command = [sys.executable, "-m", "tests.bench.overload", "--seconds", str(size(5, 60))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = json.loads(ended.stdout.splitlines()[-1])["runs"]
    report_counts("overload_rejects", sum(run["rejected"] for run in runs))
