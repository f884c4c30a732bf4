"""Random requests and random bytes end in typed statuses, and a stream beside them is untouched: invariant I8."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.common.serving.channel import connect
from tests.integration.gateway_stack import WAIT_S, ask_for, harness
from tests.support.fakes_target import FakeTarget
from tests.support.metrics import value_of

ALLOWED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
FLOATS = (0.0, -0.0, 1.0, 0.5, 2.0, -1.0, 1e-45, 3.4e38, math.nan, math.inf, -math.inf)
WHOLE = (0, 1, 2, 5, 20, 21, 511, 512, 2**31 - 1, 2**32 - 1)
TEXTS = ("", "a", "the fox", "\x00", "\ufffd", "日本", "x" * 300, "<|end|>", "{{ 7 }}")
OBJECTS = ("", "{}", '{"a": 1}', "[]", "{", '{"a": NaN}', "[" * 9_999)
TIMES = tuple(duration_pb2.Duration(seconds=seconds) for seconds in (-5, 0, 9))
GENERATE = "/paceline.v1.InferenceService/Generate"


def maybe(numbers: random.Random, choices: tuple[Any, ...], share: float = 0.25) -> Any:
    """One of the choices, or None for a field left out."""
    return numbers.choice(choices) if numbers.random() < share else None


def prompt(numbers: random.Random) -> inference_pb2.Prompt:
    """Any form, some of them empty or foreign."""
    kind = numbers.randrange(6)
    if kind == 0:
        return inference_pb2.Prompt()
    if kind == 1:
        ids = [numbers.choice(WHOLE) for _ in range(numbers.randrange(4))]
        return inference_pb2.Prompt(tokens=types_pb2.TokenIds(ids=ids))
    if kind == 2:
        roles = ("user", "system", "assistant", "root", "")
        chat = [
            inference_pb2.ChatMessage(role=numbers.choice(roles), content=numbers.choice(TEXTS))
            for _ in range(numbers.randrange(3))
        ]
        made = inference_pb2.Chat(messages=chat)
        if maybe(numbers, (True,)):
            made.tools.add(name=numbers.choice(TEXTS), parameters=numbers.choice(OBJECTS))
            made.messages.add(role=numbers.choice(roles), tool_call_id=numbers.choice(TEXTS))
            made.messages[-1].tool_calls.add(name="f", arguments=numbers.choice(OBJECTS))
        if maybe(numbers, (True,)):
            made.template_arguments[numbers.choice(("a", "tools", "", "é"))].number = numbers.choice(FLOATS)
        return inference_pb2.Prompt(chat=made)
    return inference_pb2.Prompt(text=numbers.choice(TEXTS))


def any_request(numbers: random.Random) -> inference_pb2.GenerateRequest:
    """A request of which most are wrong in one or two fields."""
    sampling = types_pb2.Sampling(
        temperature=maybe(numbers, FLOATS), top_p=maybe(numbers, FLOATS), top_k=maybe(numbers, WHOLE),
        min_p=maybe(numbers, FLOATS, 0.1), seed=maybe(numbers, WHOLE), repetition_penalty=maybe(numbers, FLOATS, 0.1),
        presence_penalty=maybe(numbers, FLOATS, 0.1), frequency_penalty=maybe(numbers, FLOATS, 0.1),
        logit_bias={numbers.choice(WHOLE): numbers.choice(FLOATS) for _ in range(numbers.choice((0, 0, 0, 1)))},
    )  # fmt: skip
    stopping = types_pb2.Stopping(
        max_tokens=numbers.choice((0, 1, 4, 9)), min_tokens=maybe(numbers, WHOLE, 0.1),
        stop=[numbers.choice(TEXTS)] * numbers.choice((0, 0, 1, 17)), ignore_eos=maybe(numbers, (True, False)),
        stop_token_ids=[numbers.choice(WHOLE)] * numbers.choice((0, 0, 1, 65)),
    )  # fmt: skip
    return inference_pb2.GenerateRequest(
        model=maybe(numbers, ("fake", "other"), 0.1), prompt=prompt(numbers), sampling=sampling, stopping=stopping,
        logprobs=maybe(numbers, WHOLE, 0.1), priority=maybe(numbers, (0, 100, -101, 2**31 - 1), 0.1),
        timeout=maybe(numbers, TIMES, 0.1),
        idempotency_key=maybe(numbers, ("k" * 129, "\x00"), 0.05), migration=maybe(numbers, (True, False)),
        constraint=maybe(numbers, ("x",), 0.03),
    )  # fmt: skip


def damaged(numbers: random.Random, data: bytes) -> bytes:
    """The message with some bytes changed, cut or repeated."""
    broken = bytearray(data or b"\x00")
    for _ in range(numbers.randint(1, 4)):
        broken[numbers.randrange(len(broken))] = numbers.randrange(256)
    return bytes(broken[: numbers.randint(1, len(broken))]) * numbers.choice((1, 1, 2))


async def outcome(method: Any, data: bytes) -> str:
    """Name of the status that a message ends with."""
    try:
        async for _ in method(data, timeout=WAIT_S):
            pass
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


@pytest.mark.timeout(1800)
async def test_any_request_ends_in_a_typed_status_beside_an_unchanged_stream(
    tmp_path: Path, seed: int, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    numbers, cases, found = random.Random(seed), 20_000 if full else 600, Counter[str]()
    async with harness(tmp_path, [FakeTarget(pace_s=0.001, slots=64)]) as one, connect(one.bound.grpc) as channel:
        method: Any = channel.unary_stream(GENERATE)
        canary = ask_for(max_tokens=200, seed=77)
        alone = await one.ask(canary)
        for start in range(0, cases, 50):
            beside = asyncio.create_task(one.ask(canary))
            whole = [any_request(numbers).SerializeToString() for _ in range(50)]
            sent = [damaged(numbers, data) if numbers.random() < 0.4 else data for data in whole]
            results = await asyncio.gather(*(outcome(method, data) for data in sent))
            found.update(results)
            wrong = [data.hex() for data, result in zip(sent, results, strict=True) if result not in ALLOWED]
            assert not wrong, (start, seed, found, wrong[:3])
            assert (await beside).tokens == alone.tokens
        assert value_of(one.app.metrics.gateway_inflight_requests) == 0
    assert found["OK"] > cases // 50
    assert found["INVALID_ARGUMENT"] > cases // 4
    report_counts("fuzzed_requests", cases)
