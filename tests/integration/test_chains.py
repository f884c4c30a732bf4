"""A real target with real drafters that make chains: text, hits, and a drafter that is killed under live streams."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from services.common.pb.paceline.v1 import types_pb2 as types
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import PACED, drafter_lost_under, plain, requests, running
from tests.support.session_client import SessionClient
from tests.support.tiny_chains import CHAINS
from tests.support.tiny_checkpoints import TinyShape
from tests.support.warm import START_S


async def test_a_killed_chain_costs_speed_only(tmp_path: Path, full: bool) -> None:
    """The head in the hybrid's own file; the next drafter goes on from the target's seeds."""
    for kind in sorted(CHAINS) if full else ("mtp",):
        models = CHAINS[kind](tmp_path / kind, 3, TinyShape())
        with tempfile.TemporaryDirectory(prefix="pl-") as folder:
            async with running(PairProcesses(Path(folder), models, environment=PACED)) as pair:
                spare = pair.add_drafter()
                frames = requests(4, 96)
                expected = await plain(pair, frames)
                await asyncio.to_thread(pair.drafters[spare].bound, START_S)
                async with SessionClient(pair.bound["grpc"]) as client:
                    await drafter_lost_under(pair, spare, client, frames)
                    for name, received in client.requests.items():
                        end = await received.ended()
                        assert end.finish_reason == types.FINISH_REASON_LENGTH
                        assert received.tokens == expected[name]
                        assert end.speculation.drafted > 0
                        assert name == "r0" or end.usage.cached_tokens > 0, "found as its twin left it"
                state = await asyncio.to_thread(pair.describe)
                assert (state.attachment, state.drafter.proposer) == ("attached", kind.partition("-")[0])
                assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
