"""Lines for a pipe whose reader may be slow or have stopped: nobody waits for it, and no line is cut."""

import os
import stat
import time
from contextlib import suppress
from typing import TextIO

KEPT_BYTES = 1 << 20
"""Kept for a reader that is slow; lines beyond are lost, and counted."""
LAST_S = 1.0
"""Seconds that an end gives the reader for what is kept."""


class Unhurried:
    """Writes to a pipe of its own descriptor; not for several threads at once."""

    def __init__(self, descriptor: int) -> None:
        """Takes a descriptor that does not block."""
        self._pipe = descriptor
        self._kept = bytearray()
        self._lost = 0

    @property
    def behind(self) -> bool:
        """Whether lines are kept."""
        return bool(self._kept)

    def write(self, text: str) -> int:
        """Takes whole lines; loses them where too many are kept."""
        data = text.encode(errors="backslashreplace")
        if len(self._kept) + len(data) > KEPT_BYTES:
            self._lost += text.count("\n")
        else:
            self._kept += data
        self.flush()
        return len(text)

    def flush(self) -> None:
        """Writes what the pipe has room for; a pipe that nobody will read takes nothing."""
        try:
            while self._kept:
                del self._kept[: os.write(self._pipe, self._kept)]
        except BlockingIOError:
            pass
        except OSError:
            self._kept.clear()

    def lost(self) -> int:
        """How many lines were lost since this was asked last; 0 while it is behind."""
        if self._kept:
            return 0
        lost, self._lost = self._lost, 0
        return lost

    def end(self) -> None:
        """Waits for the reader, `LAST_S` at most, and closes the descriptor."""
        end = time.monotonic() + LAST_S
        while self._kept and time.monotonic() < end:
            time.sleep(0.01)
            self.flush()
        with suppress(OSError):
            os.close(self._pipe)
        self._pipe = -1


def unhurried(stream: TextIO) -> TextIO | Unhurried:
    """The stream, or if it is a pipe what writes to that without waiting.

    The pipe is opened anew: whoever else writes to it, such as a child, goes on waiting as it did.
    """
    with suppress(OSError, ValueError):
        number = stream.fileno()
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            stream.flush()
            return Unhurried(os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    return stream
