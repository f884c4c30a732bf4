"""F13: the clock of the machine jumps by an hour under live streams. Durations come from a clock that does not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.answers import same
from tests.faults.conftest import Size
from tests.faults.fleet import running_fleet
from tests.faults.shim import Clock, build

STREAMS, TOKENS = 8, 150
HOUR_S = 3600


def told_time() -> float:
    """What a process of this environment takes for the time."""
    return float(subprocess.check_output([sys.executable, "-c", "import time; print(time.time())"]))


@pytest.mark.whole
async def test_f13_a_clock_that_jumps_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    clock = Clock(tmp_path, build(tmp_path))
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    async with running_fleet(2) as fleet:
        expected = await fleet.expected(STREAMS, TOKENS)
        jumps = size(1, 5)
        for jump in range(jumps):
            for seconds in (HOUR_S, 0, -HOUR_S, 0):
                streams = await fleet.begin_all(STREAMS, TOKENS)
                clock.shift(seconds)
                assert abs(told_time() - time.time() - seconds) < 60, "the clock jumped"
                answers = await asyncio.gather(*(stream.task for stream in streams))
                for answer, wanted in zip(answers, expected, strict=True):
                    assert same(answer, wanted), (jump, seconds)
                assert max(answer.longest_gap_s for answer in answers) < 3.0
        await fleet.quiet()
        assert "target lost" not in fleet.gateway.log.read_text()
    report_counts("clock_jumps", 4 * jumps)
