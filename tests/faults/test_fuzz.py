"""L3 and Z1: random deadlines and random requests. No call ends INTERNAL or UNKNOWN; a canary's text never changes."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.serving.channel import connect
from tests.faults.answers import judge, request, same
from tests.faults.conftest import Size
from tests.faults.fleet import SHAMEFUL, Fleet
from tests.support.session_client import SessionClient

pytestmark = pytest.mark.asyncio(loop_scope="session")
AT_ONCE = 32
LATE_S = 0.1
NUMBERS = (0, 1, 2, 20, 21, 319, 320, 2**31 - 1, 2**31, 2**32 - 1)
REALS = (0.0, -0.0, 1e-45, 1e-6, 0.5, 1.0, 2.0, 2.1, -1.0, 1e38, float("nan"), float("inf"), float("-inf"))
TEXTS = ("", "a", "a\0b", "é" * 300, "\u2028", "🚴" * 60, "x" * 100_000)
METHOD = "/paceline.v1.InferenceService/Generate"


@pytest.mark.alone
async def test_l3_deadlines_hold_wherever_they_fall(
    fleet: Fleet, rng: random.Random, size: Size, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    """No stream ends for its deadline before that has passed, nor long after."""
    expected = await fleet.expected(8, 60)
    count = size(48, 5000)
    draws = iter([(rng.randrange(8), rng.choice((0.001, 0.05, 0.3, 1.0, 30.0))) for _ in range(count)])
    late_s: list[float] = []

    async def one(number: int, seconds: float) -> None:
        asked = request(number, 60)
        asked.timeout.FromMilliseconds(round(seconds * 1000))
        due = time.monotonic() + seconds
        answer = await fleet.ask(asked)
        ended = answer.final is not None and answer.final.finish_reason == types_pb2.FINISH_REASON_LENGTH
        assert answer.tokens == expected[number].tokens[: len(answer.tokens)]
        assert not ended or len(answer.tokens) == 60
        assert answer.code in (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED)
        if not ended:
            late_s.append(answer.last - due)

    async def client() -> None:
        for number, seconds in draws:
            await one(number, seconds)

    # As many tasks as streams: thousands that start at once hold up this loop, which takes the times.
    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    await fleet.quiet()
    report_counts("deadlines", count)
    assert min(late_s) >= 0
    print(f"L3: {len(late_s)} deadlines passed; late by median {statistics.median(late_s) * 1e3:.0f} ms, ", end="")
    print(f"max {max(late_s) * 1e3:.0f} ms")
    if full:
        judge(late_s, LATE_S)


async def test_z1_random_requests_are_refused_or_served(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    (canary,) = await fleet.expected(1, 60)
    count = size(100, 20_000)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(asked: inference_pb2.GenerateRequest) -> None:
        async with gate:
            await fleet.ask(asked)

    async def watch() -> None:
        while not done.is_set():
            assert same(await fleet.ask(request(0, 60)), canary)

    done = asyncio.Event()
    watching = asyncio.create_task(watch())
    await asyncio.gather(*(one(wild_request(rng)) for _ in range(count)))
    done.set()
    await watching
    assert same(await fleet.ask(request(0, 60)), canary)
    await fleet.quiet()
    report_counts("fuzzed_requests", count)


async def _refusal(call: Any) -> grpc.aio.AioRpcError | None:
    """How a call ended, read to its end; nothing if it ended well."""
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def test_z1_random_bytes_are_refused(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """A valid message with bytes changed, cut or added, on the gateway and on a target."""
    (canary,) = await fleet.expected(1, 60)
    count = size(100, 20_000)
    seeds = [request(number, 5).SerializeToString() for number in range(4)]
    frames = [pb.SessionRequest(hello=pb.Hello(protocol_version=1)).SerializeToString()]
    async with connect(fleet.gateway_address) as gateway, connect(fleet.pairs[0].bound["grpc"]) as target:
        generate: Any = gateway.unary_stream(METHOD)
        # Not a stream of one message: a client says INTERNAL of itself where the call ends before it has sent.
        session: Any = target.unary_stream("/paceline.v1.TargetService/Session")
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(trial: int, data: bytes) -> None:
            async with gate:
                error = await _refusal((generate if trial % 2 else session)(data, timeout=60.0))
                assert error is None or error.code() not in SHAMEFUL, (error.code(), data)

        damaged = [_damaged(rng, rng.choice(seeds if trial % 2 else frames)) for trial in range(count)]
        await asyncio.gather(*(one(*each) for each in enumerate(damaged)))
    assert same(await fleet.ask(request(0, 60)), canary)
    await fleet.quiet()
    report_counts("fuzzed_messages", count)


async def test_z1_random_start_frames_end_one_request_each(
    fleet: Fleet, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """The target validates again: a gateway that passes anything on harms nobody else."""
    count = size(60, 5000)
    async with SessionClient(fleet.pairs[0].bound["grpc"]) as client:
        for trial in range(count):
            asked = wild_request(rng)
            frame = pb.Start(
                request_id=f"r{trial}",
                token_ids=asked.prompt.tokens.ids,
                prompt_length=rng.choice(NUMBERS),
                sampling=asked.sampling,
                stopping=types_pb2.Stopping(max_tokens=rng.randint(0, 4), stop_token_ids=asked.stopping.stop_token_ids),
                speculation=asked.speculation,
                priority=asked.priority,
                idempotency_key=asked.idempotency_key,
            )
            end = await (await client.start(frame)).ended()
            assert end.error.reason != types_pb2.ERROR_REASON_INTERNAL
    await fleet.quiet()
    report_counts("fuzzed_frames", count)


def wild_request(rng: random.Random) -> inference_pb2.GenerateRequest:
    """A request with a few wild fields and few tokens to generate."""
    made = request(rng.randrange(8), rng.randint(1, 4))
    for _ in range(rng.randint(0, 3)):
        rng.choice(_WILD)(made, rng)
    if made.stopping.max_tokens > 4 and rng.random() < 0.9:
        made.stopping.max_tokens = 4
    return made


def _number(rng: random.Random) -> int:
    return rng.choice(NUMBERS)


def _real(rng: random.Random) -> float:
    return rng.choice(REALS)


def _wild_sampling(made: inference_pb2.GenerateRequest, rng: random.Random) -> None:
    name = rng.choice(("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"))
    setattr(made.sampling, name, _real(rng))


def _wild_top_k(made: inference_pb2.GenerateRequest, rng: random.Random) -> None:
    made.sampling.top_k = _number(rng)


def _wild_bias(made: inference_pb2.GenerateRequest, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 3, 1025))):
        made.sampling.logit_bias[rng.randrange(2**32) if rng.random() < 0.3 else rng.randrange(320)] = _real(rng)


def _wild_prompt(made: inference_pb2.GenerateRequest, rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        made.prompt.text = rng.choice(TEXTS)
    elif kind == 1:
        made.prompt.tokens.ids[:] = [_number(rng) for _ in range(rng.randint(0, 5))]
    elif kind == 2:
        made.prompt.tokens.ids[:] = [5] * rng.choice((2046, 2047, 2048, 5000))
    else:
        chat = made.prompt.chat
        chat.messages.add(role=rng.choice(("user", "system", "assistant", "", "\0")), content=rng.choice(TEXTS))
        chat.messages[0].tool_calls.add(name="f", arguments=rng.choice(("{}", "[", '{"a": ' * 5000)))
        chat.template_arguments[rng.choice(("a", "messages", "\0"))].number = _real(rng)


def _wild_stopping(made: inference_pb2.GenerateRequest, rng: random.Random) -> None:
    made.stopping.min_tokens = _number(rng)
    count = rng.choice((1, 2, 17, 10_000))
    made.stopping.stop.extend(rng.choice(TEXTS if count < 17 else TEXTS[:4]) for _ in range(count))
    made.stopping.stop_token_ids.extend(_number(rng) for _ in range(rng.choice((0, 1, 65))))


def _wild_options(made: inference_pb2.GenerateRequest, rng: random.Random) -> None:
    made.logprobs = _number(rng)
    made.priority = rng.choice((-(2**31), -101, -100, 100, 101, 2**31 - 1))
    made.idempotency_key = rng.choice(TEXTS)
    made.model = rng.choice(("", "nobody", "a\0"))


def _wild_reserved(made: inference_pb2.GenerateRequest, rng: random.Random) -> None:
    made.constraint = rng.choice(TEXTS)
    made.speculation.max_draft = _number(rng)


_WILD = (
    _wild_sampling,
    _wild_top_k,
    _wild_bias,
    _wild_prompt,
    _wild_stopping,
    _wild_options,
    _wild_reserved,
)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut off or added."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        kind, at = rng.randrange(3), rng.randrange(len(damaged) + 1)
        if kind == 0 and at < len(damaged):
            damaged[at] = rng.randrange(256)
        elif kind == 1:
            del damaged[at:]
        else:
            damaged[at:at] = rng.randbytes(rng.randint(1, 6))
    return bytes(damaged)
