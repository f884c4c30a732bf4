"""Calls that gRPC or a client's clock ends are told as the client was told, and under no other's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import generate_latest

from services.gateway.streams import calls
from services.gateway.streams.calls import ANYBODY, UNKNOWN, TenantLabels
from tests.integration.gateway_stack import Answer, Harness, ask_for
from tests.integration.test_calls_recorded import SERVICE, Crowd, recording, series, settled
from tests.support.kept_calls import Lines

LARGER_THAN_ANY = 8 << 20
SHORT_S, LATE_S = 2.0, 1.8
"""Time of a call, and by how much later than its client the gateway may have begun to count it."""


async def code_of(call: Any) -> str:
    """The code that gRPC gives its client."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code().name


async def told(one: Harness, lines: Lines, count: int) -> list[dict[str, Any]]:
    """The lines of so many calls; counters agree with them."""
    await settled(lines, count)
    counted = series(generate_latest(one.app._server._registry).decode(), "gateway_requests_total")
    assert sum(counted.values()) == count
    assert all(counted[line["code"], line["endpoint"]] for line in lines.lines)
    return lines.lines


async def test_a_call_whose_client_s_time_is_over_counts_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client ends it a moment before the gateway would, so it looks like one that left; the moment is long here."""
    monkeypatch.setattr(calls, "EARLY_S", LATE_S)
    async with recording(tmp_path, monkeypatch) as (one, client, lines, _):
        one.targets[0].hold(1)
        key = {"metadata": Crowd(one, client).key("a")["metadata"]}
        answer = Answer()
        ended = one.ask(ask_for(max_tokens=3000), timeout=SHORT_S, into=answer, **key)
        assert await code_of(ended) == "DEADLINE_EXCEEDED"
        (line,) = await told(one, lines, 1)
        assert (line["message"], line["code"], line["reason"]) == ("request ended", "DEADLINE_EXCEEDED", "DEADLINE")
        assert line["completion_tokens"] >= len(answer.tokens) > 0


async def test_a_client_that_leaves_in_time_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with recording(tmp_path, monkeypatch) as (one, client, lines, _):
        call = one.stub.Generate(ask_for(max_tokens=3000), **Crowd(one, client).key("a"))
        assert await call.read()
        call.cancel()
        (line,) = await told(one, lines, 1)
        assert (line["code"], "reason" in line) == ("CANCELLED", False)


@pytest.mark.parametrize("method", ["Generate", "GetModel", "Tokenize"])
async def test_a_message_that_grpc_does_not_take_is_told_as_its_client_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async with recording(tmp_path, monkeypatch) as (one, client, lines, _):
        async with grpc.aio.insecure_channel(one.bound.grpc) as channel:
            call: Any = channel.unary_unary(f"{SERVICE}/{method}")
            code = await code_of(call(bytes(LARGER_THAN_ANY), **Crowd(one, client).key("a")))
        (line,) = await told(one, lines, 1)
        assert line["code"] == code == "RESOURCE_EXHAUSTED"
        assert (line["message"], line["tenant"]) == ("request refused", "a")


async def test_a_call_without_a_message_is_malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with recording(tmp_path, monkeypatch) as (one, client, lines, _):
        async with grpc.aio.insecure_channel(one.bound.grpc) as channel:
            call: Any = channel.stream_unary(f"{SERVICE}/GetModel")
            assert await code_of(call(iter(()), **Crowd(one, client).key("a"))) == "INVALID_ARGUMENT"
        (line,) = await told(one, lines, 1)
        assert (line["code"], line["reason"]) == ("INVALID_ARGUMENT", "MALFORMED")


@pytest.mark.parametrize("name", ["anybody", "unknown", "other"])
def test_a_tenant_is_not_taken_for_those_who_are_none(name: str) -> None:
    labels = TenantLabels((), lambda: [name], 1)
    assert labels.of(name) == (f"tenant {name}",) * 2
    assert labels.of("") == (UNKNOWN, UNKNOWN)
    assert TenantLabels((), None, 1).of("") == (ANYBODY, ANYBODY)
    assert TenantLabels(("a",), lambda: [name, "a"], 1).of(name) == (f"tenant {name}", "other")
    assert TenantLabels((name,), lambda: [name, "a"], 1).of(name) == (f"tenant {name}",) * 2
