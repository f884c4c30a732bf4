"""Processes: leaving early, ending descendants, dying with the parent, watching another one by pidfd."""

import contextlib
import ctypes
import gc
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Where the number of threads stands in /proc/PID/stat, behind the session.
_THREADS = 13
# How long a thread without work may take to end.
_IDLE_S = 0.2
# How long the kernel may take to end what was killed.
_KILL_S = 2.0

MOST_DESCRIPTORS = 1 << 16


def leave_when_asked(tidy: Callable[[], object] = lambda: None) -> None:
    """Makes SIGTERM and SIGINT end this process with 0, for the seconds in which it imports its libraries."""

    def at_once(*_: object) -> None:
        tidy()
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, at_once)
    take_signals()


def take_signals() -> None:
    """Lets Ctrl-C in, which the command `paceline` holds back while a program of its own imports its modules."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def collect_later() -> None:
    """Leaves garbage alone until `lifecycle.run` has started its service.

    Imports make hardly any, and looking for it again and again takes a tenth of their time.
    """
    gc.disable()


def raise_descriptors() -> None:
    """Lets this process open as many descriptors as the system grants it; the usual limit is for programs of old."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def leave(code: int) -> NoReturn:
    """Ends this process without waiting for threads that still load: they cannot be stopped."""
    others = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    for one in others:
        one.join(_IDLE_S)
    if any(one.is_alive() for one in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def leave_now(code: int) -> NoReturn:
    """Ends this process without the exit handlers of libraries: some wait for processes that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own has ended, so that none outlives end_descendants."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[tuple[int, str]]:
    """Process id and name, of 15 characters at most, of every child of this process that has not ended."""
    pids = [pid for pid, (parent, _) in _living().items() if parent == os.getpid()]
    return [(pid, name) for pid in pids if (name := name_of(pid))]


def name_of(pid: int) -> str:
    """The kernel's name of a process, 15 characters at most; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def end_session(session: int) -> None:
    """SIGKILL to every process of a session, again while any lives: one may be starting another right now."""
    _end(lambda living: [pid for pid, (_, of) in living.items() if of == session])


def end_descendants() -> None:
    """SIGKILL to the children of this process and theirs, again while any lives: one may be starting another now."""
    _end(_descendants)


def _end(of: Callable[[dict[int, tuple[int, int]]], list[int]]) -> None:
    """Kills those of the living, and waits for them: one whose parent ended first is a descendant no more."""
    end, killed = time.monotonic() + _KILL_S, set[int]()
    while ((found := of(living := _living())) or killed & living.keys()) and time.monotonic() < end:
        _kill(found)
        killed.update(found)
        time.sleep(0.01)


def _descendants(living: dict[int, tuple[int, int]]) -> list[int]:
    found = [os.getpid()]
    for ancestor in found:
        found += [pid for pid, (parent, _) in living.items() if parent == ancestor and pid not in found]
    return found[1:]


def _living() -> dict[int, tuple[int, int]]:
    """Parent and session of every process that has not ended.

    One whose first thread alone has ended is called a zombie too, but keeps its children until its last thread ends.
    """
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, _, session, *more = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state not in "ZX" or int(more[_THREADS]) > 1:
            found[int(entry.name)] = (int(parent), int(session))
    return found


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


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

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until the process ends; False when it still runs after timeout_s, if there is one."""
        ready, _, _ = select.select([self._descriptor], [], [], timeout_s)
        return bool(ready)

    def kill(self) -> bool:
        """SIGKILL; nothing more when the process has ended. False when it is no longer watched."""
        if self._descriptor < 0:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        return True

    def close(self) -> None:
        """Closes the descriptor once: a second close could close another descriptor of the same number."""
        with self._closing:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
