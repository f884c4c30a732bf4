"""Ports that no other process is given: for what keeps its port over an end, and for one at which nobody may listen.

A port that the system chose is free again as soon as its server ends, and the next server anywhere may get it. So
these stand below the range that the system chooses from, and each process has a block of them for itself.
"""

import os
import socket
from functools import cache

BLOCK, FIRST, END = 200, 21_000, 32_000


def free_ports(count: int) -> list[int]:
    """A run of ports of this process's block that are free now; the next calls give others, in turn."""
    _, ports = _block(os.getpid())  # a fork has a block of its own
    for _ in range(BLOCK):
        run = ports[:count]
        ports[:] = ports[count:] + run
        if run == list(range(run[0], run[0] + count)) and all(map(_free, run)):
            return run
    raise AssertionError(f"no {count} free ports in a row")


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]


@cache
def _block(process: int) -> tuple[socket.socket, list[int]]:
    """The first block that nobody holds; the name that holds it goes with the process."""
    for first in range(FIRST, END, BLOCK):
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0paceline-test-ports-{first}")
        except OSError:
            holder.close()
        else:
            return holder, list(range(first, first + BLOCK))
    raise AssertionError("every block of ports is held")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
