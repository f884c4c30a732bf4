"""Commands that come close one behind another reach the engine together, where it asks for that."""

from __future__ import annotations

import threading
import time

import pytest

from services.target.core.commands import Drain, MoveAll
from services.target.core.inbox import Inbox


def test_what_comes_close_behind_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round planned behind the first prompt of a burst decoded its one row, and the others waited."""
    now = 0.0
    monkeypatch.setattr("services.target.core.inbox._APART_S", 20.0)
    monkeypatch.setattr("services.target.core.inbox.monotonic", lambda: now)
    inbox = Inbox()
    inbox.put(Drain())

    def come() -> None:
        nonlocal now
        for moment in (0.0, 0.0, 1.0):  # the last one comes when the time to gather is over, and is waited for
            time.sleep(0.02)
            now = moment
            inbox.put(MoveAll())

    thread = threading.Thread(target=come)
    thread.start()
    assert inbox.gather() == [Drain(), MoveAll(), MoveAll(), MoveAll()]
    thread.join()


def test_gathering_ends_where_nothing_comes() -> None:
    inbox = Inbox()
    assert inbox.gather() == []
    inbox.put(Drain())
    assert inbox.gather() == [Drain()]
    assert inbox.take() == []


def test_a_stream_of_commands_is_not_gathered_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.target.core.inbox._APART_S", 20.0)
    inbox, stopped = Inbox(), threading.Event()
    inbox.put(Drain())

    def put() -> None:
        while not stopped.is_set():
            inbox.put(Drain())
            time.sleep(1e-4)

    thread = threading.Thread(target=put)
    thread.start()
    try:
        assert inbox.gather()
    finally:
        stopped.set()
        thread.join()
