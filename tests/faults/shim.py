"""A clock that a test shifts: a library that libc's clocks pass through, and the file that holds the shift."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

# Shifts the clock of a process, which libc tells to Python and to gRPC's core, by the seconds that a file holds. The
# file is mapped, for some processes ask for the time often.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *shift;

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) shift = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    if (code == 0 && clock == CLOCK_REALTIME && shift != NULL) now->tv_sec += *shift;
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


class Clock:
    """The clock of all processes that have `environment`."""

    def __init__(self, folder: Path, library: Path) -> None:
        """The shift is a file in the folder; `build` makes the library."""
        self._file = folder / "clock-shift"
        self._file.write_bytes(struct.pack("l", 0))
        self.environment = {"CLOCK_SHIFT": str(self._file), "LD_PRELOAD": str(library)}

    def shift(self, seconds: int) -> None:
        """Steps the clock to so many seconds beside the true time."""
        with self._file.open("r+b") as file:
            os.pwrite(file.fileno(), struct.pack("l", seconds), 0)


def build(folder: Path) -> Path:
    """The library; needs a C compiler."""
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
