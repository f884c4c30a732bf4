"""Seconds that the processes which serve have computed: on a busy machine they tell what the clock cannot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

SERVES = (b"TargetHost", b"DrafterHost", b"services.gateway")
"""In the command lines of what serves; Ray's own processes look around whether anybody asks or not."""
TICKS = os.sysconf("SC_CLK_TCK")


def below(pid: int) -> Iterator[int]:
    """All descendants of a process."""
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in thread.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in children:
            yield child
            yield from below(child)


def serving(pid: int) -> list[int]:
    """The processes below one that serve.

    Raises:
        ProcessLookupError: there are none.
    """
    found = [one for one in below(pid) if any(name in _command(one) for name in SERVES)]
    if not found:
        raise ProcessLookupError(f"nothing below {pid} serves")
    return found


def cpu_s(pids: list[int]) -> float:
    """What processes have computed so far, in user's and system's time."""
    return sum(_ticks(pid) for pid in pids) / TICKS


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
