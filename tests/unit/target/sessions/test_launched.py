"""How long a frame waits for a launch."""

from __future__ import annotations

import asyncio
import threading

import pytest

from services.target.core.launching import Launching
from services.target.sessions.sessions import launched

WAIT_S = 30.0
"""Half of what a frame would wait for a launch that does not end."""


async def test_a_frame_goes_on_at_the_end_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.target.sessions.sessions.LAUNCH_S", 60.0)
    launching = Launching(lambda: 0.0)
    launching.begin()
    waits = asyncio.create_task(launched(launching))
    await asyncio.sleep(0.02)
    assert not waits.done()
    threading.Thread(target=launching.end).start()
    await asyncio.wait_for(waits, WAIT_S)


async def test_a_frame_waits_for_no_launch_where_there_is_none() -> None:
    launching = Launching(lambda: 0.0)
    await asyncio.wait_for(launched(launching), WAIT_S)
    launching.begin()
    launching.end()
    await asyncio.wait_for(launched(launching), WAIT_S)
