"""What the machine holds a process up is told apart from what the process waits for itself."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

from tests.support.held import Held

WAITS_S = 0.2


@pytest.mark.whole
@pytest.mark.parametrize(("work", "held_up"), [("while True: pass", True), ("import time; time.sleep(600)", False)])
async def test_only_a_thread_that_is_ready_is_held_up(work: str, held_up: bool) -> None:
    """Two processes have one processor; one second of it is looked at."""
    both = [subprocess.Popen([sys.executable, "-c", work]) for _ in range(2)]
    try:
        for process in both:
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        await asyncio.sleep(1.0)
        here, there = Held(), Held(both[0].pid)
        async with here.looking(), there.looking():
            began = time.monotonic()
            await asyncio.sleep(1.0)
            over = time.monotonic()
        assert (there.between(began, over) - here.between(began, over) > WAITS_S) == held_up
    finally:
        for process in both:
            process.kill()
            process.wait()
