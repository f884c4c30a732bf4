"""A drafter on the GPU writes all that it maps: the text stays, and the next drafter gets its weights anew."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from tests.faults.test_drafter_writes import drafted, frames, turn_to
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import plain
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, WARM_S
from tests.support.scribbling_drafter import ScribblingDrafter
from tests.support.tiny_checkpoints import TinyPair

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SCRIBBLES = 200


@pytest.mark.parametrize("handoff", ["host", "flags"])
async def test_a_drafter_that_writes_all_it_can_changes_no_text(handoff: str, seed: int) -> None:
    device = ["--device", DEVICE]
    flags = [*device, "--handoff", handoff, "--slots", "4", "--blocks", "256"]
    flags += ["--prefix-cache", "false"]  # its draft context stays damaged
    with tempfile.TemporaryDirectory(prefix="pl") as name:
        folder = Path(name)
        scribbling = ScribblingDrafter(folder, seed)
        pair = PairProcesses(folder, TinyPair(EMBEDDED / "target", EMBEDDED / "drafter"), flags, drafter_flags=device)
        try:
            await asyncio.to_thread(pair.wait_ready, WARM_S)
            expected = await plain(pair, frames())
            assert await drafted(pair, expected) > 0
            turn_to(pair, folder / "fake.sock")
            pair.kill_drafter(0)
            await asyncio.to_thread(pair.wait_attached, 2)
            while scribbling.scribbles < SCRIBBLES:
                await drafted(pair, expected)
            assert (scribbling.open, scribbling.sealed) == (1, 0), "nothing seals a GPU's memory"
            pair.turn_to(pair.add_drafter())
            scribbling.stop()
            await asyncio.to_thread(pair.wait_attached, 3)
            assert "copy of the weights is damaged: sent again" in pair.target.tail()
            assert await drafted(pair, expected) > 0
        finally:
            await asyncio.to_thread(pair.stop)
            scribbling.stop()
