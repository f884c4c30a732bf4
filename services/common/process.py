"""Small truths about processes: dying with the parent, watching another one by pidfd."""

import ctypes
import os
import select
import signal
import threading

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Asks the kernel to send this process a signal when the thread that started it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)


class Watched:
    """Another process held by pidfd, so that its pid cannot be taken over unnoticed.

    Raises:
        ProcessLookupError: from construction, when the process is gone.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._closing = threading.Lock()

    @property
    def alive(self) -> bool:
        """The process has not ended."""
        return not self.wait(0.0)

    def wait(self, timeout_s: float) -> bool:
        """Waits until the process ends; False when it still runs after timeout_s."""
        ready, _, _ = select.select([self._descriptor], [], [], timeout_s)
        return bool(ready)

    def kill(self) -> None:
        """SIGKILL; nothing when the process has ended or is no longer watched."""
        if self._descriptor < 0:
            return
        try:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """Gives the descriptor back, once: a second close could end a stranger's descriptor of the same number."""
        with self._closing:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
