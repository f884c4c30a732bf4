"""A pair of processes on one GPU, by flags: the same text with and without drafts, and after the drafter is killed."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from services.common.model.made_up import MadeUpPair
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.gpu.kernels.devices import INTERPRETED
from tests.integration.pair import PairProcesses
from tests.session_client import SessionClient, start

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
TOKENS = 200
PROMPTS = ([17, 300, 45, 9], [801, 22, 7, 64, 5], [33, 210], [400, 401, 402])


@pytest.fixture(scope="module")
def pair() -> Iterator[PairProcesses]:
    device = ["--device", "cuda"]
    models = MadeUpPair(EMBEDDED / "target", EMBEDDED / "drafter")
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        started = PairProcesses(Path(folder), models, [*device, "--handoff", "flags"], drafter_flags=device)
        try:
            started.wait_ready()
            yield started
        finally:
            started.stop()


async def _texts(
    client: SessionClient, name: str, temperature: float, off: bool
) -> tuple[list[list[int]], list[float]]:
    sampling = types.Sampling(temperature=temperature, seed=5)
    speculation = types.Speculation(off=off)
    streams = [
        await client.start(start(f"{name}-{i}", prompt, TOKENS, sampling=sampling, speculation=speculation))
        for i, prompt in enumerate(PROMPTS)
    ]
    ends = [await stream.ended() for stream in streams]
    taus = [TOKENS / max(1, end.speculation.rounds) for end in ends]
    return [stream.tokens for stream in streams], taus


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_drafts_change_the_speed_and_not_the_text(pair: PairProcesses, temperature: float) -> None:
    async with SessionClient(pair.bound["grpc"]) as client:
        plain, ones = await _texts(client, f"plain-{temperature}", temperature, True)
        drafted, taus = await _texts(client, f"drafted-{temperature}", temperature, False)
    assert drafted == plain
    assert max(ones) < 1.01
    assert sum(taus) / len(taus) > 1.5


async def test_a_killed_drafter_costs_speed_only(pair: PairProcesses) -> None:
    async with SessionClient(pair.bound["grpc"]) as client:
        plain, _ = await _texts(client, "before", 0.0, True)
        running = asyncio.create_task(_texts(client, "during", 0.0, False))
        await asyncio.sleep(0.1)
        pair.kill_drafter(0)
        during, _ = await running
        assert during == plain
        pair.turn_to(pair.add_drafter())
        end = time.monotonic() + 60
        taus = [1.0]
        while max(taus) < 1.5 and time.monotonic() < end:
            after, taus = await _texts(client, f"after-{time.monotonic_ns()}", 0.0, False)
            assert after == plain
    assert max(taus) > 1.5
