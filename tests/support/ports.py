"""Ports for what must keep its port over a restart; everything else binds port 0."""

import os
import socket


def free_ports(count: int) -> list[int]:
    """A run of ports that are free now."""
    # Far from those of processes that began just before or after.
    for first in range(21_000 + os.getpid() * 101 % 5_000, 32_000, count):
        ports = list(range(first, first + count))
        if all(_free(port) for port in ports):
            return ports
    raise AssertionError("no free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
