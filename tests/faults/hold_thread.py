"""python -m tests.faults.hold_thread PID: stops the busiest thread of a process and lets the others run, until it ends.

A signal would stop them all. A program of its own, for a stopped thread must be reaped by the thread that stopped it.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

_SEIZE, _INTERRUPT = 0x4206, 0x4207
_WALL = 0x40000000
LOOK_S = 0.5


def worked(pid: int) -> dict[int, int]:
    """Ticks of the processor that each thread has had."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        found[int(task.name)] = int(fields[11]) + int(fields[12])
    return found


def stop(thread: int) -> None:
    """Stops one thread.

    Raises:
        OSError: the kernel does not allow it.
    """
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.argtypes = [ctypes.c_ulong, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p]
    for request in (_SEIZE, _INTERRUPT):
        if trace(request, thread, None, None):
            raise OSError(ctypes.get_errno(), f"ptrace: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Prints a line when the thread is stopped; ends with the process."""
    pid = int(sys.argv[1])
    before = worked(pid)
    time.sleep(LOOK_S)
    now = worked(pid)
    thread = max(now, key=lambda each: now[each] - before.get(each, 0))
    stop(thread)
    print(thread, flush=True)
    while not os.WIFSIGNALED(status := os.waitpid(thread, _WALL)[1]) and not os.WIFEXITED(status):
        pass


if __name__ == "__main__":
    main()
