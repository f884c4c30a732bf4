"""Lines for a pipe whose reader may be slow or have stopped: nobody waits for it, and no line is cut."""

import os
import select
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from threading import RLock, Thread
from typing import TextIO

KEPT_BYTES = 1 << 20
"""Kept for a reader that is slow; lines beyond are lost, and counted."""
LAST_S = 1.0
"""Seconds that an end gives the reader for what is kept, and for the line that tells what was lost."""
_AT_ONCE, _PAUSE_S, _LOOK_MS = 1 << 16, 0.01, 1000


class Unhurried:
    """Writes to a pipe of its own descriptor; what it keeps goes on as soon as there is room, whoever writes or not."""

    def __init__(self, descriptor: int) -> None:
        """Takes a descriptor that does not block."""
        self._pipe = descriptor
        self._kept = bytearray()
        self._lost = 0
        self._lock = RLock()
        self._follows = False

    @property
    def behind(self) -> bool:
        """Whether lines are kept."""
        return bool(self._kept)

    def write(self, text: str) -> int:
        """Takes whole lines; loses them where too many are kept."""
        data = text.encode(errors="backslashreplace")
        with self._lock:
            if len(self._kept) + len(data) > KEPT_BYTES:
                self._lost += text.count("\n")
            else:
                self._kept += data
            self.flush()
            if self._kept and not self._follows:
                room = select.poll()
                room.register(self._pipe, select.POLLOUT)
                with suppress(RuntimeError):  # no thread can be made, as while the interpreter ends
                    Thread(target=self._follow, args=(room,), name="slow-reader", daemon=True).start()
                    self._follows = True
        return len(text)

    def flush(self) -> None:
        """Writes what the pipe has room for; a pipe that nobody will read takes nothing."""
        with self._lock:
            try:
                while self._kept:
                    del self._kept[: os.write(self._pipe, bytes(self._kept[:_AT_ONCE]))]
            except BlockingIOError:
                pass
            except OSError:
                self._kept.clear()

    def _follow(self, room: select.poll) -> None:
        """Writes what is kept as its reader goes on."""
        while True:
            room.poll(_LOOK_MS)
            with self._lock:
                self.flush()
                self._follows = bool(self._kept)
                if not self._follows:
                    return
            time.sleep(_PAUSE_S)

    def lost(self) -> int:
        """How many lines were lost since this was asked last; 0 while it is behind."""
        with self._lock:
            if self._kept:
                return 0
            lost, self._lost = self._lost, 0
        return lost

    def end(self, told: Callable[[int], str]) -> None:
        """Gives the reader `LAST_S` at most, tells how many lines were lost, and closes the descriptor.

        told is what to write of such a number; what is kept in the end is lost.
        """
        end = time.monotonic() + LAST_S
        self._wait(end)
        if lost := self.lost():
            self.write(told(lost))
            self._wait(end)
        with self._lock:
            self._kept.clear()
            with suppress(OSError):
                os.close(self._pipe)
            self._pipe = -1

    def _wait(self, end: float) -> None:
        while self._kept and time.monotonic() < end:
            time.sleep(_PAUSE_S)
            self.flush()


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
