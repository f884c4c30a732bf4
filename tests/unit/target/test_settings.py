"""What a target's settings come to."""

from typing import Any

import pytest

from services.common.pair.handoff import HandoffMode
from services.target.settings import TargetSettings


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, HandoffMode.SOCKET),
        ({"device": "cuda"}, HandoffMode.FLAGS),
        ({"handoff": "host"}, HandoffMode.HOST),
        ({"device": "cuda", "handoff": "host"}, HandoffMode.HOST),
        ({"handoff": "wire"}, HandoffMode.WIRE),
        ({"drafter_memory": "none"}, HandoffMode.WIRE),
        ({"device": "cuda", "drafter_memory": "none"}, HandoffMode.WIRE),
    ],
    ids=str,
)
def test_the_hand_off_follows_from_device_memory_and_wish(settings: dict[str, Any], mode: HandoffMode) -> None:
    assert TargetSettings(model="m", **settings).handoff_mode is mode
