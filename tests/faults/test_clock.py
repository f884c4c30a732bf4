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

STREAMS, TOKENS = 8, 150
HOUR_S = 3600

# Shifts the clock of a process, which libc tells to Python and to gRPC's core, by the seconds that a file holds.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <sys/time.h>

static long shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    FILE *file = path ? fopen(path, "r") : NULL;
    long seconds = 0;
    if (file != NULL) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    if (code == 0 && clock == CLOCK_REALTIME) now->tv_sec += shift();
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int code = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return code;
}

time_t time(time_t *out) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (out != NULL) *out = precise.tv_sec;
    return precise.tv_sec;
}
"""


def build(folder: Path) -> Path:
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def told_time() -> float:
    """What a process of this environment takes for the time."""
    return float(subprocess.check_output([sys.executable, "-c", "import time; print(time.time())"]))


@pytest.mark.whole
async def test_f13_a_clock_that_jumps_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    shift = tmp_path / "shift"
    shift.write_text("0")
    monkeypatch.setenv("CLOCK_SHIFT", str(shift))
    monkeypatch.setenv("LD_PRELOAD", str(build(tmp_path)))
    async with running_fleet(2) as fleet:
        expected = await fleet.expected(STREAMS, TOKENS)
        jumps = size(1, 5)
        for jump in range(jumps):
            for seconds in (HOUR_S, 0, -HOUR_S, 0):
                streams = await fleet.begin_all(STREAMS, TOKENS)
                shift.write_text(str(seconds))
                assert abs(told_time() - time.time() - seconds) < 60, "the clock jumped"
                answers = await asyncio.gather(*(stream.task for stream in streams))
                for answer, wanted in zip(answers, expected, strict=True):
                    assert same(answer, wanted), (jump, seconds)
                assert max(answer.longest_gap_s for answer in answers) < 3.0
        await fleet.quiet()
        assert "target lost" not in fleet.gateway.log.read_text()
    report_counts("clock_jumps", 4 * jumps)
