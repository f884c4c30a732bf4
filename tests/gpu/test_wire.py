"""Hand-off by wire with a target on a GPU: the drafts of a drafter on that GPU, or elsewhere, reach its mailbox."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import plain, requests
from tests.integration.test_wire import ALONE
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, WARM_S
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import TinyPair

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
NGRAM = ("--proposer", "ngram")
MODES = {
    "dflash-on-the-arena": (("--handoff", "wire"), ("--device", DEVICE)),
    "ngram-on-the-gpu": (ALONE, (*NGRAM, "--device", DEVICE)),
    "ngram-on-a-cpu": (ALONE, NGRAM),
}


@pytest.mark.parametrize(("flags", "drafter_flags"), MODES.values(), ids=MODES)
async def test_drafts_by_wire_change_the_speed_and_not_the_text(
    flags: Sequence[str], drafter_flags: Sequence[str]
) -> None:
    models = TinyPair(EMBEDDED / "target", EMBEDDED / "drafter")
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = PairProcesses(Path(folder), models, ("--device", DEVICE, *flags), drafter_flags=drafter_flags)
        try:
            await asyncio.to_thread(pair.wait_ready, WARM_S)
            frames = requests(4, 200)
            expected = await plain(pair, frames)
            async with SessionClient(pair.bound["grpc"]) as client:
                for frame in frames:
                    await client.start(frame)
                ends = [await received.ended() for received in client.requests.values()]
                assert {name: received.tokens for name, received in client.requests.items()} == expected
            assert sum(end.speculation.accepted for end in ends) > 40
            state = await asyncio.to_thread(pair.describe)
            assert (state.attachment, state.handoff_mode) == ("attached", "wire")
            assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
        finally:
            await asyncio.to_thread(pair.stop)
