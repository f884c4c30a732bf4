"""A gateway and a target of neighbouring releases understand one another, whichever of them is the older."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.stack import EMBEDDED
from services.common.pb.paceline.v1 import fleet_pb2, inference_pb2_grpc, target_pb2, types_pb2
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import connect
from services.gateway.app import GatewayApp
from services.gateway.settings import GatewaySettings
from tests.integration.gateway_stack import Answer, ask_for
from tests.integration.pair import PairProcesses
from tests.integration.recorded import SESSION, old, old_worker, sent, updates
from tests.integration.test_pair import running
from tests.support.tiny_checkpoints import TinyPair

WAIT_S = 240.0
PRESENT: dict[str, dict[str, type[Any]]] = {
    "session": {"to": target_pb2.SessionRequest, "from": target_pb2.SessionResponse},
    "watch": {"to": fleet_pb2.WatchRequest, "from": fleet_pb2.WatchResponse},
    "describe": {"to": target_pb2.TargetServiceDescribeRequest, "from": target_pb2.TargetServiceDescribeResponse},
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because Unix sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        yield Path(name)


@pytest.mark.parametrize(("call", "direction"), [(call, way) for call in PRESENT for way in ("to", "from")])
def test_no_word_of_the_last_release_is_lost(call: str, direction: str) -> None:
    frames = sent(call, direction)
    assert frames
    for frame in frames:
        read = PRESENT[call][direction].FromString(frame)
        twin = old(PRESENT[call][direction].DESCRIPTOR.name).FromString(frame)
        assert read.SerializeToString(deterministic=True) == twin.SerializeToString(deterministic=True)
        read.DiscardUnknownFields()
        assert read.SerializeToString(deterministic=True) == twin.SerializeToString(deterministic=True)


def test_both_releases_state_one_protocol() -> None:
    hello = old("SessionRequest").FromString(sent("session", "to")[0]).hello
    assert hello.protocol_version == PROTOCOL_VERSION


async def test_this_gateway_serves_from_a_worker_of_the_last_release() -> None:
    recorded = [token for update in next(iter(updates().values())) for token in update.token_ids]
    async with old_worker() as address:
        settings = GatewaySettings(tokenizer=str(EMBEDDED / "target"), watch=(address,), propagation_s=0.0)
        app = GatewayApp(settings)
        bound = await app.start()
        try:
            async with connect(bound.grpc) as channel:
                answer = Answer()
                stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
                async for response in stub.Generate(ask_for("def add", len(recorded)), timeout=WAIT_S):
                    answer.take(response)
        finally:
            await app.drain()
    assert answer.tokens == recorded
    assert answer.final is not None
    assert answer.final.usage.completion_tokens == len(recorded)


async def replayed(address: str) -> dict[str, list[Any]]:
    """Says to a target what the old gateway said; what it answers, read by the old contract, by request."""
    frames = [old("SessionRequest").FromString(frame) for frame in sent("session", "to")]
    waiting = {frame.start.request_id for frame in frames if frame.HasField("start")}
    answers: dict[str, list[Any]] = {name: [] for name in waiting}
    async with connect(address) as channel, asyncio.timeout(WAIT_S):
        call: Any = channel.stream_stream(SESSION)()
        for frame in frames:
            await call.write(frame.SerializeToString())
        welcome = old("SessionResponse").FromString(await call.read())
        assert welcome.welcome.protocol_version == PROTOCOL_VERSION
        while waiting:
            for update in old("SessionResponse").FromString(await call.read()).round.updates:
                answers[update.request_id].append(update)
                waiting -= {update.request_id} if update.HasField("end") else set()
        call.cancel()
    return answers


async def test_this_target_serves_a_gateway_of_the_last_release(folder: Path) -> None:
    models = TinyPair(EMBEDDED / "target", EMBEDDED / "drafter")
    async with running(PairProcesses(folder, models)) as pair:
        answers = await replayed(pair.bound["grpc"])
    starts = [old("SessionRequest").FromString(frame).start for frame in sent("session", "to")]
    greedy, sampled, *_ = [answers[start.request_id] for start in starts if start.request_id]
    assert sum(len(update.token_ids) for update in greedy) == 24
    assert greedy[-1].end.finish_reason == types_pb2.FINISH_REASON_LENGTH
    assert greedy[-1].end.usage.completion_tokens == 24
    assert all(len(update.logprobs) == len(update.token_ids) for update in sampled)
    assert not any(update.end.HasField("error") for update in (greedy[-1], sampled[-1]))
