"""Cores of this machine that pairs on CPUs keep, each for itself, whatever cluster they are of."""

import os
import socket

_NAME = "\0paceline-core-{}"
"""A socket's name without a file: it is free again when the process that holds it ends, however it ends."""


class Cores:
    """The cores that the pairs of one cluster took. They take none where that would leave none to all else."""

    def __init__(self, pairs: int) -> None:
        self._pairs = pairs
        self._taken: dict[int, tuple[int, socket.socket]] = {}

    def take(self, index: int) -> int:
        """Return the core of pair number index, at every call the same; -1 where others have them all.

        A pair without a core is left to the system, which moves it.
        """
        if index in self._taken:
            return self._taken[index][0]
        cores = sorted(os.sched_getaffinity(0))
        if self._pairs >= len(cores):
            return -1
        for core in cores:
            if (held := _held(core)) is not None:
                self._taken[index] = core, held
                return core
        return -1

    def close(self) -> None:
        """Give all of them back."""
        for _, held in self._taken.values():
            held.close()
        self._taken.clear()


def _held(core: int) -> socket.socket | None:
    """Return what keeps a core while it is open; None where another cluster has it."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(_NAME.format(core))
    except OSError:
        held.close()
        return None
    return held
