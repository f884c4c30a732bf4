"""What the commands find of the machine that they run on."""

import pytest

from services.common.preflight import memory

ROOM_BYTES = 1 << 38


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much memory is free as a large machine has, whatever other processes hold of this one meanwhile."""
    monkeypatch.setattr(memory, "free_bytes", lambda: ROOM_BYTES)
