"""The session service over real gRPC, with an engine over the fake runner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from services.common.device.numerics import Numerics
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.serving.channel import connect
from services.common.serving.server import Listeners, Server
from services.target.core.inbox import Inbox
from services.target.core.launching import Launching
from services.target.core.load import Load
from services.target.core.messages import Update
from services.target.drain import drain
from services.target.engine.thread import EngineThread
from services.target.sessions.served_model import ServedModel
from services.target.sessions.service import ServiceParts, TargetService
from services.target.sessions.sessions import RoundFrame, Sessions
from services.target.sessions.starts import start_from_pb
from tests.support.fakes_runner import expected_output
from tests.support.session_client import WAIT_S, SessionClient, start
from tests.unit.target.core.specs import prompt
from tests.unit.target.engine.engine_rig import Rig, rig

VOCAB = 97
NUMERICS = Numerics(release="1.2.3", device="a CPU", libraries={"torch": "2"}, dtype="float32")
MODEL = ServedModel("fake", "r1", 128, VOCAB, (), "float32", 3)


@dataclass
class Target:
    """A target over the fake runner."""

    address: str
    rig: Rig
    thread: EngineThread
    sessions: Sessions
    server: Server
    launching: Launching

    def output(self, frame: pb.Start, tokens: int) -> list[int]:
        return expected_output(start_from_pb(frame, MODEL.bounds, 16, 60.0, 0.0), VOCAB, tokens)


@pytest.fixture
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    loop = asyncio.get_running_loop()
    inbox, launching = Inbox(), Launching(lambda: 0.0)
    sessions = Sessions(inbox.put, getattr(request, "param", 1024))
    it = rig(deliver=lambda news: loop.call_soon_threadsafe(sessions.deliver, news), real_time=True)
    service = TargetService()
    server = Server(
        "target",
        Listeners(),
        lambda main: rpc.add_TargetServiceServicer_to_server(service, main),
        ["paceline.v1.TargetService"],
        CollectorRegistry(),
    )
    parts = ServiceParts(
        sessions=sessions,
        submit=inbox.put,
        describe=pb.TargetServiceDescribeResponse,
        model=MODEL,
        numerics=NUMERICS,
        load=lambda: pb.Load(slots=16, running=3, speculating=True),
        proposer=lambda: "none",
        pair_id="pair-7",
        default_max_tokens=16,
        max_request_s=60.0,
        launching=launching,
    )
    bound = await server.start()
    service.open(parts)
    thread = EngineThread(it.engine, inbox, lambda error: None)
    thread.start()
    yield Target(bound.grpc, it, thread, sessions, server, launching)
    sessions.close_all()
    await server.stop(1.0)
    await asyncio.to_thread(thread.stop)


async def test_welcome_tells_pair_model_and_load(target: Target) -> None:
    async with SessionClient(target.address) as client:
        assert client.welcome.pair_id == "pair-7"
        assert client.welcome.model.context_limit == 128
        assert client.welcome.model.limits["max_stop_strings"] == 16
        assert client.welcome.load == pb.Load(slots=16, running=3, speculating=True)
        told = client.welcome.numerics
        assert (told.digest, told.release, told.device) == (NUMERICS.digest, "1.2.3", "a CPU")
        assert (dict(told.libraries), told.dtype) == ({"torch": "2"}, "float32")
        assert client.welcome.HasField("up")
        assert client.welcome.up.ToNanoseconds() < 300e9, "it counts from when calls were taken"


async def test_frames_wait_while_a_round_is_launched_and_never_long(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that stands still a launch never grows old: frames go on after a while all the same."""
    monkeypatch.setattr("services.target.sessions.sessions.LAUNCH_S", 0.3)
    async with SessionClient(target.address) as client:
        began = time.monotonic()
        target.launching.begin()
        first = await client.start(start("a", prompt(1, 6, VOCAB), 4))
        await first.at_least(1)
        assert time.monotonic() - began >= 0.3, "the loop leaves the interpreter to the engine"
        await first.ended()
        target.launching.end()
        assert (await (await client.start(start("b", prompt(2, 6, VOCAB), 4))).ended()).usage.completion_tokens == 4


async def test_large_frames_to_a_gateway_wait_and_small_ones_do_not(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few tokens take less time than a launch."""
    monkeypatch.setattr("services.target.sessions.sessions.LAUNCH_S", 30.0)
    async with SessionClient(target.address) as client:
        (session,) = target.sessions._open.values()
        target.launching.begin()
        for number, count in ((1001, 8), (1002, 9)):
            updates = tuple(Update(f"u{number}-{n}", tokens=(5,)) for n in range(count))
            session.put(RoundFrame(number, Load(0, 0, 4, 0, 0, 0), False, updates), 0.0)
        await came(client, 1001)
        await asyncio.sleep(0.05)
        assert 1002 not in [each.number for each in client.rounds]
        target.launching.end()
        await came(client, 1002)


async def came(client: SessionClient, number: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while number not in [each.number for each in client.rounds]:
            await asyncio.sleep(1e-3)


async def test_requests_of_a_session_share_frames_and_arrive_whole(target: Target) -> None:
    frames = [start(f"r{n}", prompt(n, 6 + n, VOCAB), 12 + n) for n in range(4)]
    async with SessionClient(target.address) as client:
        for frame in frames:
            await client.start(frame)
        for frame in frames:
            end = await client.requests[frame.request_id].ended()
            assert end.finish_reason == types.FINISH_REASON_LENGTH
            assert end.usage.completion_tokens == frame.stopping.max_tokens
            assert client.requests[frame.request_id].tokens == target.output(frame, frame.stopping.max_tokens)
        numbers = [each.number for each in client.rounds if each.updates]
        assert numbers == sorted(set(numbers)), "one frame a round"
        assert all(each.load.slots == 4 for each in client.rounds)


async def test_an_idle_session_hears_the_engine_beat(target: Target) -> None:
    async with SessionClient(target.address) as client:
        async with asyncio.timeout(30):
            while len(client.rounds) < 3:
                await asyncio.sleep(0.05)
        assert not any(each.updates for each in client.rounds)


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (start("x", (), 4), "prompt"),
        (start("x", (5, VOCAB), 4), "prompt"),
        (start("x", (5, 6), 4, prompt_length=3), "prompt_length"),
        (start("x", (5, 6), 4, sampling=types.Sampling(temperature=float("nan"))), "sampling.temperature"),
        (start("x", (5, 6), 4, sampling=types.Sampling(logit_bias={VOCAB: 1.0})), "sampling.logit_bias"),
        (start("x", (5, 6), 4, logprobs=21), "logprobs"),
        (start("x", (5, 6), 4, priority=101), "priority"),
        (start("x", (5, 6), 4, idempotency_key="k" * 129), "idempotency_key"),
        (start("x", [5] * 128, 4), "prompt"),
    ],
)
async def test_bad_requests_are_refused_by_field_and_neighbours_go_on(
    target: Target, frame: pb.Start, field: str
) -> None:
    good = start("good", prompt(1, 9, VOCAB), 30)
    async with SessionClient(target.address) as client:
        neighbour = await client.start(good)
        refused = await client.start(frame)
        end = await refused.ended()
        assert end.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert end.error.field.startswith(field)
        assert not refused.tokens
        await neighbour.ended()
        assert neighbour.tokens == target.output(good, 30)


@pytest.mark.parametrize(
    "frames",
    [
        [pb.SessionRequest()],
        [pb.SessionRequest(start=pb.Start(request_id=""))],
        [pb.SessionRequest(start=pb.Start(request_id="x" * 129))],
        [pb.SessionRequest(hello=pb.Hello(protocol_version=1))],
    ],
)
async def test_a_broken_protocol_ends_the_session_only(target: Target, frames: list[pb.SessionRequest]) -> None:
    good = start("good", prompt(1, 9, VOCAB), 30)
    async with SessionClient(target.address) as neighbour, SessionClient(target.address) as client:
        received = await neighbour.start(good)
        for frame in frames:
            await client.send(frame)
        assert await client.closed() is grpc.StatusCode.INVALID_ARGUMENT
        await received.ended()
        assert received.tokens == target.output(good, 30)


async def test_another_protocol_version_is_refused(target: Target) -> None:
    client = SessionClient(target.address, version=2)
    await client.hello()
    assert client.status is grpc.StatusCode.FAILED_PRECONDITION
    await client.close()


async def test_describe_checks_the_version(target: Target) -> None:
    async with connect(target.address) as channel:
        stub = cast("rpc.TargetServiceAsyncStub", rpc.TargetServiceStub(channel))
        await stub.Describe(pb.TargetServiceDescribeRequest(protocol_version=1))
        with pytest.raises(grpc.RpcError) as refused:
            await stub.Describe(pb.TargetServiceDescribeRequest())
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_target_that_is_starting_says_so() -> None:
    service = TargetService()
    server = Server(
        "target",
        Listeners(),
        lambda main: rpc.add_TargetServiceServicer_to_server(service, main),
        ["paceline.v1.TargetService"],
        CollectorRegistry(),
    )
    bound = await server.start()
    client = SessionClient(bound.grpc)
    await client.hello()
    assert client.status is grpc.StatusCode.UNAVAILABLE
    await client.close()
    await server.stop(0.0)


async def test_cancel_ends_the_request_and_frees_its_blocks(target: Target) -> None:
    target.rig.runner.before_execute = lambda plan: time.sleep(0.05)
    async with SessionClient(target.address) as client:
        received = await client.start(start("a", prompt(1, 9, VOCAB), 100))
        await received.at_least(3)
        await client.cancel("a", 3)
        end = await received.ended()
        assert end.finish_reason == types.FINISH_REASON_CANCELLED
        await client.cancel("never", 0)
        assert target.rig.scheduler.load().running == 0
        assert target.rig.ledger.emitted == 3


async def test_one_frame_cancels_several_requests(target: Target) -> None:
    target.rig.runner.before_execute = lambda plan: time.sleep(0.05)
    async with SessionClient(target.address) as client:
        received = await client.start(start("a", prompt(1, 9, VOCAB), 100))
        await received.at_least(3)
        others = [pb.Cancel(request_id=name, tokens_kept=3, reason="cancel") for name in ("one", "a", "other")]
        await client.cancel("never", 0, others=others)
        assert (await received.ended()).finish_reason == types.FINISH_REASON_CANCELLED
        assert target.rig.ledger.emitted == 3


async def test_a_vanished_gateway_frees_everything(target: Target) -> None:
    target.rig.runner.before_execute = lambda plan: time.sleep(0.01)
    async with SessionClient(target.address) as client:
        for n in range(4):
            await client.start(start(f"r{n}", prompt(n, 9, VOCAB), 100))
        await client.requests["r3"].at_least(2)
    async with asyncio.timeout(30):
        while target.rig.engine.pending or len(target.sessions):
            await asyncio.sleep(0.02)
    assert target.rig.scheduler.load().running == 0
    assert target.rig.ledger.unsettled == 0


async def test_drain_says_go_away_and_moves_what_is_left(target: Target) -> None:
    target.rig.runner.before_execute = lambda plan: time.sleep(0.05)
    async with SessionClient(target.address) as client:
        short = await client.start(start("short", prompt(1, 9, VOCAB), 4))
        frame = start("long", prompt(2, 9, VOCAB), 110)
        long = await client.start(frame)
        await long.at_least(1)
        await drain(target.server.set_serving, target.thread, target.sessions, propagation_s=0.0, grace_s=2.0)
        assert (await short.ended()).finish_reason == types.FINISH_REASON_LENGTH
        assert (await long.ended()).moved
        assert long.tokens == target.output(frame, len(long.tokens))
        assert client.go_away is not None
        assert await client.closed() is grpc.StatusCode.OK
