"""A real target with real drafters: what clients see when drafters come and go, and when the target leaves."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from services.common.metrics.version import VERSION
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.integration.pair import ENVIRONMENT, PairProcesses
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair, write_tiny
from tests.support.warm import START_S
from tests.unit.target.core.specs import prompt

SAMPLED = types.Sampling(temperature=0.9, top_p=0.95, seed=2**63 + 7, repetition_penalty=1.1)
TREES = ("--nodes", "true", "--widths", "1,16")
"""More rows than the drafter's block has: no chain is so long."""
OFF = types.Speculation(off=True)
PACED = {**ENVIRONMENT, "PACELINE_SYNC_POINTS": "plan:pace=0.02"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_tiny(tmp_path_factory.mktemp("models"), seed=3)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        yield Path(name)


@asynccontextmanager
async def running(pair: PairProcesses) -> AsyncIterator[PairProcesses]:
    """Ends the processes whatever happens."""
    try:
        await asyncio.to_thread(pair.wait_ready)
        yield pair
    finally:
        await asyncio.to_thread(pair.stop)


async def plain(pair: PairProcesses, frames: list[pb.Start]) -> dict[str, list[int]]:
    """The output of the same requests with speculation off."""
    async with SessionClient(pair.bound["grpc"]) as client:
        for frame in frames:
            twin = pb.Start()
            twin.CopyFrom(frame)
            twin.speculation.CopyFrom(OFF)
            await client.start(twin)
        for received in client.requests.values():
            await received.ended()
        return {name: received.tokens for name, received in client.requests.items()}


def requests(count: int, tokens: int) -> list[pb.Start]:
    """Greedy and sampled requests of different lengths."""
    return [start(f"r{n}", prompt(n, 7 + 11 * n), tokens, sampling=SAMPLED if n % 2 else None) for n in range(count)]


async def test_speculation_and_bad_frames_leave_text_alone(folder: Path, models: TinyPair) -> None:
    async with running(PairProcesses(folder, models)) as pair:
        frames = requests(4, 48)
        expected = await plain(pair, frames)
        async with SessionClient(pair.bound["grpc"]) as client, SessionClient(pair.bound["grpc"]) as broken:
            for frame in frames:
                await client.start(frame)
            refused = await client.start(start("bad", (1, 2, 10_000), 4))
            await broken.send(pb.SessionRequest())
            assert (await refused.ended()).error.reason == types.ERROR_REASON_INVALID_FIELD
            assert await broken.closed() is grpc.StatusCode.INVALID_ARGUMENT
            for frame in frames:
                end = await client.requests[frame.request_id].ended()
                assert client.requests[frame.request_id].tokens == expected[frame.request_id]
                assert end.speculation.drafted > 0
        state = await asyncio.to_thread(pair.describe)
        assert (state.attachment, state.handoff_mode) == ("attached", "socket")
        assert state.drafter.proposer == "dflash"
        assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
        assert 0 < state.graphs.capture_seconds < 120
        assert state.load.running == state.load.waiting == 0
        assert (state.numerics.release, state.numerics.dtype) == (VERSION, "float32")
        assert state.numerics.libraries["torch"] and state.numerics.device.endswith("threads 1")
        assert state.numerics.digest
        assert (state.exactness.mode, state.exactness.unchecked) == ("fallback", "this is a CPU")
        assert len(state.rounds) <= 256
        assert len(state.costs) == 4 * 3


@pytest.mark.parametrize("flags", [("host",), ("wire", *TREES)], ids=" ".join)
async def test_host_order_and_wire_ask_over_grpc_when_they_are_wanted(
    folder: Path, models: TinyPair, flags: tuple[str, ...]
) -> None:
    async with running(PairProcesses(folder, models, ["--handoff", *flags])) as pair:
        frames = requests(2, 24)
        expected = await plain(pair, frames)
        async with SessionClient(pair.bound["grpc"]) as client:
            for frame in frames:
                await client.start(frame)
            for name, received in client.requests.items():
                assert (await received.ended()).speculation.drafted > 0
                assert received.tokens == expected[name]
        state = await asyncio.to_thread(pair.describe)
        assert state.handoff_mode == flags[0]
        assert ({each.width for each in state.rounds} >= {16}) == (len(flags) > 1)


async def drafter_lost_under(
    pair: PairProcesses, spare: int, client: SessionClient, frames: list[pb.Start]
) -> pb.TargetServiceDescribeResponse:
    """Starts requests, kills the first drafter under them, and returns the target's state with the spare one."""
    for frame in frames:
        await client.start(frame)
    for received in client.requests.values():
        await received.at_least(10)
    await asyncio.to_thread(pair.kill_drafter, 0)
    pair.turn_to(spare)
    state = await asyncio.to_thread(pair.wait_attached, 2)
    assert state.load.running == len(frames), "the requests lived through it"
    return state


@pytest.mark.parametrize(
    "flags", [pytest.param((), id="chains"), pytest.param(TREES, id="trees", marks=pytest.mark.whole)]
)
async def test_a_killed_drafter_costs_speed_only(folder: Path, models: TinyPair, flags: tuple[str, ...]) -> None:
    async with running(PairProcesses(folder, models, flags, PACED)) as pair:
        spare = pair.add_drafter()
        frames = requests(4, 160)
        expected = await plain(pair, frames)
        await asyncio.to_thread(pair.drafters[spare].bound, START_S)
        async with SessionClient(pair.bound["grpc"]) as client:
            state = await drafter_lost_under(pair, spare, client, frames)
            attached_at = state.rounds[-1].number
            for name, received in client.requests.items():
                end = await received.ended()
                assert end.finish_reason == types.FINISH_REASON_LENGTH
                assert received.tokens == expected[name]
        rounds = (await asyncio.to_thread(pair.describe)).rounds
        assert any(each.width > 1 for each in rounds if each.number > attached_at), "speculation is back"
        assert any(each.width == 1 for each in rounds if each.number < attached_at)


async def test_sigterm_moves_what_cannot_finish_and_exits_with_0(folder: Path, models: TinyPair) -> None:
    flags = ("--drain-grace-s", "1")
    async with running(PairProcesses(folder, models, flags, PACED)) as pair:
        async with SessionClient(pair.bound["grpc"]) as client:
            short = await client.start(start("short", prompt(1, 9), 8))
            frame = start("long", prompt(2, 9), 1500)
            long = await client.start(frame)
            await long.at_least(1)
            pair.target.process.terminate()
            assert (await short.ended()).finish_reason == types.FINISH_REASON_LENGTH
            assert (await long.ended()).moved
            assert client.go_away is not None
            assert await client.closed() is grpc.StatusCode.OK
        assert await asyncio.to_thread(pair.target.process.wait, 60) == 0, pair.target.tail()
        assert list(folder.glob("side-*/*.sock")) == []


async def test_a_broken_checkpoint_is_never_served(folder: Path, models: TinyPair) -> None:
    weights = next(models.target.glob("*.safetensors")).read_bytes()
    damaged = folder / "m"
    damaged.mkdir()
    for file in models.target.iterdir():
        data = file.read_bytes()
        (damaged / file.name).write_bytes(weights[: len(weights) // 2] if file.suffix == ".safetensors" else data)
    pair = PairProcesses(folder, TinyPair(damaged, models.drafter))
    try:
        assert await asyncio.to_thread(pair.target.process.wait, 60) == 1
        assert "safetensors" in pair.target.tail()
    finally:
        await asyncio.to_thread(pair.stop)


async def test_a_dead_engine_ends_the_process(folder: Path, models: TinyPair) -> None:
    broken = {**ENVIRONMENT, "PACELINE_SYNC_POINTS": "commit:raise@20"}
    async with running(PairProcesses(folder, models, environment=broken)) as pair:
        async with SessionClient(pair.bound["grpc"]) as client:
            received = await client.start(start("a", prompt(1, 9), 500))
            await client.closed()
            assert not received.ends, "a gateway takes it for a lost target and continues elsewhere"
        assert await asyncio.to_thread(pair.target.process.wait, 60) == 1
