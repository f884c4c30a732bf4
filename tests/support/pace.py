"""How long anything takes on this machine now: bounds of seconds that users are promised are told of a quiet one."""

import subprocess
import sys
import time

ALLOWED = 2.0
"""So many times what the yardstick took may be added: load comes and goes between both."""


def started_s() -> float:
    """Seconds until a process has imported what a client needs and has ended; some 0.4 on a quiet machine."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import grpc, paceline"], check=True, timeout=120)
    return time.monotonic() - begun


def within_s(promised_s: float) -> float:
    """The bound for a promise, with what this machine's other work adds to it now; what hangs is far above it."""
    return promised_s + ALLOWED * started_s()


def kept(promised_s: float, before_s: float, took_s: float) -> bool:
    """Whether it took as long as promised at most, by the bound of before or, as load may have come since, of now."""
    return took_s <= before_s or took_s <= within_s(promised_s)
