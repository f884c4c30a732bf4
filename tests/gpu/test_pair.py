"""A pair on one GPU in float32, by flags, in turns and under MPS: the same text whatever becomes of the drafter."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED
from services.common.pb.paceline.v1 import drafter_pb2, drafter_pb2_grpc, target_pb2
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import connect_sync
from tests.bench.gpu.mps import Mps
from tests.integration.pair import PairProcesses
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, WARM_S
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
TOKENS = 200
PROMPTS = ([17, 300, 45, 9], [801, 22, 7, 64, 5], [33, 210], [400, 401, 402])


@pytest.fixture(scope="module", params=["timeslice", "mps"])
def pair(request: pytest.FixtureRequest) -> Iterator[PairProcesses]:
    device = ["--device", DEVICE]
    flags = [*device, "--watchdog-s", "0.25", *(["--handoff", "flags"] if DEVICE == "cuda" else [])]
    models = TinyPair(EMBEDDED / "target", EMBEDDED / "drafter")
    with Mps(request.param == "mps") as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with tempfile.TemporaryDirectory(prefix="pl") as folder:
            started = PairProcesses(Path(folder), models, flags, drafter_flags=device)
            try:
                started.wait_ready(WARM_S)
                assert started.describe().handoff_mode == f"flags_{request.param}"
                assert started.describe().gpu_sharing == request.param
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


def _ruled(frame: target_pb2.Start, index: int) -> target_pb2.Start:
    """Every fourth is nobody's; others may say few tokens, or close a thought when its budget is spent."""
    if index % 4 == 1:
        frame.rule.allowed.extend(range(5, 500, 3))
    elif index % 4 == 2:
        thought = target_pb2.Thought(opening=60, closing=61, begun=True, budget=20 + index, ending=[*range(70, 80), 61])
        frame.rule.thought.CopyFrom(thought)
    elif index % 4 == 3:
        frame.rule.banned.extend(types.TokenIds(ids=[token]) for token in range(0, 900, 2))
    return frame


async def _ruled_texts(client: SessionClient, name: str, temperature: float, off: bool) -> list[list[int]]:
    sampling, speculation = types.Sampling(temperature=temperature, seed=9), types.Speculation(off=off)
    frames = [
        start(f"{name}-{i}", PROMPTS[i % len(PROMPTS)], TOKENS, sampling=sampling, speculation=speculation)
        for i in range(8)
    ]
    streams = [await client.start(_ruled(frame, index)) for index, frame in enumerate(frames)]
    for stream in streams:
        await stream.ended()
    return [stream.tokens for stream in streams]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_rows_that_masks_rule_say_the_same_in_any_company(pair: PairProcesses, temperature: float) -> None:
    async with SessionClient(pair.bound["grpc"]) as client:
        before = pair.describe().graphs.captures
        plain = await _ruled_texts(client, f"ruled-plain-{temperature}", temperature, True)
        drafted = await _ruled_texts(client, f"ruled-drafted-{temperature}", temperature, False)
        assert pair.describe().graphs.captures == before
    assert drafted == plain
    assert set(plain[1]) | set(plain[5]) <= set(range(5, 500, 3))
    for thinks in (plain[2], plain[6]):
        assert 61 in thinks
    assert all(token % 2 for text in (plain[3], plain[7]) for token in text if token < 900)


async def test_a_killed_drafter_costs_speed_only(pair: PairProcesses) -> None:
    async with SessionClient(pair.bound["grpc"]) as client:
        plain, _ = await _texts(client, "before", 0.0, True)
        running = asyncio.create_task(_texts(client, "during", 0.0, False))
        await asyncio.sleep(0.1)
        pair.kill_drafter(0)
        during, _ = await running
        assert during == plain
        await _speculates_again(pair, client, plain)


async def test_a_stopped_drafter_trips_the_watchdog_and_is_replaced(pair: PairProcesses) -> None:
    async with SessionClient(pair.bound["grpc"]) as client:
        plain, _ = await _texts(client, "running", 0.0, True)
        running = asyncio.create_task(_texts(client, "stopping", 0.0, False))
        await asyncio.sleep(0.1)
        stopped = pair.drafters[-1].process
        stopped.send_signal(signal.SIGSTOP)
        assert (await running)[0] == plain
        assert (await _texts(client, "stopped", 0.0, False))[0] == plain
        assert stopped.wait(10) == -signal.SIGKILL, "a quarantined drafter is killed"
        await _speculates_again(pair, client, plain)


async def test_a_drafter_lets_go_of_a_killed_target(pair: PairProcesses) -> None:
    """Last, for it leaves no target."""
    assert pair.describe().attachment == "attached"
    pair.target.process.send_signal(signal.SIGKILL)
    end = time.monotonic() + 1.0
    with connect_sync(f"unix:{pair.folder}/d{len(pair.drafters) - 1}") as channel:
        stub = drafter_pb2_grpc.DrafterServiceStub(channel)
        request = drafter_pb2.DrafterServiceDescribeRequest(protocol_version=PROTOCOL_VERSION)
        while stub.Describe(request, timeout=5).generation:
            assert time.monotonic() < end, "the drafter holds on"
            await asyncio.sleep(0.02)


async def _speculates_again(pair: PairProcesses, client: SessionClient, plain: list[list[int]]) -> None:
    """With a fresh drafter, on the same text."""
    pair.turn_to(pair.add_drafter())
    end = time.monotonic() + 60
    taus = [1.0]
    while max(taus) < 1.5 and time.monotonic() < end:
        after, taus = await _texts(client, f"after-{time.monotonic_ns()}", 0.0, False)
        assert after == plain
    assert max(taus) > 1.5
