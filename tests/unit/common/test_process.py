"""A watched process is given back exactly once."""

import os
import subprocess
import sys
import threading

import pytest

from services.common.process import Watched


def test_closing_from_many_threads_closes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(os.getpid())
    closed: list[int] = []
    close = os.close

    def counting(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr("services.common.process.os.close", counting)
    together = threading.Barrier(8)

    def give_back() -> None:
        together.wait(30)
        watched.close()

    threads = [threading.Thread(target=give_back) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(closed) == 1
    watched.kill()


def test_a_process_is_seen_to_end() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watched = Watched(child.pid)
    assert watched.alive
    watched.kill()
    assert watched.wait(30.0)
    assert child.wait(30) < 0
    watched.close()
