"""Lines of the log, counters, spans and what clients were told agree, over every way in which a call can end."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from prometheus_client import generate_latest

from services.common.metrics.catalogue import GENERATING
from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, types_pb2
from services.common.request.errors import Code
from services.common.serving import tracing
from services.gateway.tenancy.tenants import digest
from services.target.engine.idempotency import KeyStore
from tests.integration.gateway_stack import WAIT_S, Harness, ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, MODELS, chat, completion, serving
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Client, connected
from tests.support.kept_calls import Kept, Lines

AT_ONCE = 64
SETTLED_S = 30.0
DRAFTED = 3
"""Drafts of each round of a FakeTarget."""
TENANTS = ("a", "b", "full")
SECRET = "the word that no line may hold"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SERVICE = "/paceline.v1.InferenceService"
OF_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
OF_STATUS |= {
    405: "INVALID_ARGUMENT",
    409: "ALREADY_EXISTS",
    413: "RESOURCE_EXHAUSTED",
    415: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


@dataclass
class Told:
    """What clients were told: ends by endpoint and code, and tokens by tenant."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    tenants: Counter[tuple[str, str]] = field(default_factory=Counter)
    prompt: Counter[str] = field(default_factory=Counter)
    completion: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    finishes: Counter[str] = field(default_factory=Counter)
    first_tokens: int = 0
    later_tokens: int = 0

    def end(self, endpoint: str, code: str, tenant: str, status: int = 0) -> None:
        """A call ended."""
        self.ends[endpoint, code] += 1
        self.tenants[tenant, code] += 1
        self.statuses[status] += 1

    def tokens(self, tenant: str, prompt: int, completion: int, finishes: list[str]) -> None:
        """It had tokens."""
        self.prompt[tenant] += prompt
        self.completion[tenant] += completion
        self.finishes.update(finishes)
        self.first_tokens += len(finishes)
        self.later_tokens += completion - len(finishes)


class Crowd:
    """Clients of every kind."""

    def __init__(self, one: Harness, client: Client) -> None:
        self.one, self.http, self.told = one, client.address, Told()
        self.names = 0

    def kinds(self) -> list[Callable[[str], Awaitable[None]]]:
        """One call of each kind, by a tenant."""
        return [
            self.generate, self.wrong_field, self.no_key, self.full, self.tokenize, self.model, self.no_method,
            self.chat, self.stream, self.several, self.leave, self.http_no_key, self.http_full, self.no_path,
            self.no_way, self.large, self.no_json, self.broken, self.no_http, self.models, self.one_model, self.probe,
            self.preflight, self.bad_name, self.repeat,
        ]  # fmt: skip

    def key(self, key: str) -> dict[str, Any]:
        self.names += 1
        pairs = (("authorization", f"Bearer {key}"), ("x-request-id", f"call-{self.names}"), ("traceparent", PARENT))
        return {"metadata": pairs, "timeout": WAIT_S}

    def client(self, key: str) -> Client:
        self.names += 1
        return Client(self.http, None, **{"authorization": f"Bearer {key}", "x-request-id": f"call-{self.names}"})

    async def _rpc(self, name: str, call: Any, tenant: str) -> Any:
        try:
            answer = await call
            self.told.end(f"{SERVICE}/{name}", "OK", tenant)
        except grpc.aio.AioRpcError as error:
            self.told.end(f"{SERVICE}/{name}", error.code().name, tenant)
            return None
        return answer

    async def generate(self, tenant: str) -> None:
        answer = await self._rpc("Generate", self.one.ask(ask_for(SECRET), **self.key(tenant)), tenant)
        usage = answer.final.usage
        reason = types_pb2.FinishReason.Name(answer.final.finish_reason).removeprefix("FINISH_REASON_").lower()
        self.told.tokens(tenant, usage.prompt_tokens, len(answer.tokens), [reason])

    async def wrong_field(self, tenant: str) -> None:
        wrong = types_pb2.Stopping(max_tokens=4, min_tokens=9)
        await self._rpc("Generate", self.one.ask(ask_for(SECRET, stopping=wrong), **self.key(tenant)), tenant)

    async def no_key(self, tenant: str) -> None:
        """On a connection of its own: one with many such calls is ended."""
        async with grpc.aio.insecure_channel(
            self.one.bound.grpc, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as own:
            stub: Any = inference_pb2_grpc.InferenceServiceStub(own)
            call = stub.Generate(ask_for(SECRET), **self.key("nobody's"))
            await self._rpc("Generate", call.read(), "unknown")

    async def full(self, tenant: str) -> None:
        await self._rpc("Generate", self.one.ask(ask_for(SECRET), **self.key("full")), "full")

    async def tokenize(self, tenant: str) -> None:
        request = inference_pb2.TokenizeRequest(prompt=inference_pb2.Prompt(text=SECRET))
        await self._rpc("Tokenize", self.one.stub.Tokenize(request, **self.key(tenant)), tenant)

    async def model(self, tenant: str) -> None:
        request = inference_pb2.GetModelRequest(model="none of ours")
        await self._rpc("GetModel", self.one.stub.GetModel(request, **self.key(tenant)), tenant)

    async def no_method(self, tenant: str) -> None:
        async with grpc.aio.insecure_channel(self.one.bound.grpc) as channel:
            call: Any = channel.unary_unary(f"{SERVICE}/Guess{self.names}")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"", **self.key(tenant))
        self.told.end("other", refused.value.code().name, tenant)

    def _end(self, endpoint: str, status: int, tenant: str) -> None:
        self.told.end(endpoint, OF_STATUS.get(status, "OK"), tenant, status)

    async def _whole(self, tenant: str, path: str, body: dict[str, Any]) -> None:
        reply = await self.client(tenant).post(path, body)
        self._end(path, reply.status, tenant)
        self._told(tenant, reply.json)

    def _told(self, tenant: str, answer: dict[str, Any]) -> None:
        usage = answer["usage"]
        reasons = [choice["paceline"]["finish_reason"] for choice in answer["choices"]]
        self.told.tokens(tenant, usage["prompt_tokens"], usage["completion_tokens"], reasons)

    async def chat(self, tenant: str) -> None:
        await self._whole(tenant, CHAT, chat(SECRET))

    async def several(self, tenant: str) -> None:
        await self._whole(tenant, COMPLETIONS, completion(SECRET, n=2))

    async def stream(self, tenant: str) -> None:
        body = completion(SECRET, stream_options={"include_usage": True})
        events = [event async for event in self.client(tenant).stream(COMPLETIONS, body)]
        self._end(COMPLETIONS, 200, tenant)
        reasons = [c["paceline"]["finish_reason"] for e in events[:-2] for c in e["choices"] if c["finish_reason"]]
        usage = events[-2]["usage"]
        self.told.tokens(tenant, usage["prompt_tokens"], usage["completion_tokens"], reasons)

    async def leave(self, tenant: str) -> None:
        """Of the tokens on their way to a client that left nobody knows."""
        endless = self.client("b").stream(COMPLETIONS, completion(SECRET, max_tokens=3000))
        await anext(endless)
        await endless.aclose()
        self.told.end(COMPLETIONS, "CANCELLED", "b", 200)

    async def _refused(self, path: str, body: Any, tenant: str, endpoint: str = "", **headers: str) -> None:
        reply = await self.client(tenant).post(path, body, headers)
        assert reply.status >= 400
        self._end(endpoint or path, reply.status, tenant if tenant in TENANTS else "unknown")

    async def http_no_key(self, tenant: str) -> None:
        await self._refused(CHAT, chat(SECRET), "nobody's")

    async def http_full(self, tenant: str) -> None:
        await self._refused(CHAT, chat(SECRET), "full")

    async def repeat(self, tenant: str) -> None:
        """A call that is known by its key: it is refused once it has been tokenised and placed."""
        reply = await self.client(tenant).post(COMPLETIONS, completion(SECRET), {"idempotency-key": "once"})
        self._end(COMPLETIONS, reply.status, tenant)
        if reply.status == 200:
            self._told(tenant, reply.json)

    async def no_path(self, tenant: str) -> None:
        await self._refused(f"/v1/{SECRET.replace(' ', '-')}", {}, tenant, "other")

    async def no_way(self, tenant: str) -> None:
        reply = await self.client(tenant).get(CHAT)
        self._end(CHAT, reply.status, tenant)

    async def large(self, tenant: str) -> None:
        headers = {"authorization": f"Bearer {tenant}", "content-type": "application/json"}
        async with connected(self.http) as http:
            http.begin(CHAT, b"{}", headers | {"content-length": str(1 << 30)})
            self._end(CHAT, (await http.reply_to_raw()).status, tenant)

    async def no_json(self, tenant: str) -> None:
        await self._refused(CHAT, b"{}", tenant, **{"content-type": "text/plain"})

    async def broken(self, tenant: str) -> None:
        await self._refused(COMPLETIONS, SECRET.encode(), tenant)

    async def no_http(self, tenant: str) -> None:
        async with connected(self.http) as http:
            http.writer.write(f"{SECRET}\r\n\r\n".encode())
            self._end("other", (await http.reply_to_raw()).status, "unknown")

    async def models(self, tenant: str) -> None:
        self._end(MODELS, (await self.client(tenant).get(MODELS)).status, tenant)

    async def one_model(self, tenant: str) -> None:
        reply = await self.client(tenant).get(f"{MODELS}/{SECRET.replace(' ', '-')}")
        self._end(f"{MODELS}/{{model}}", reply.status, tenant)

    async def probe(self, tenant: str) -> None:
        self._end("/health", (await self.client("nobody's").get("/health")).status, "unknown")

    async def preflight(self, tenant: str) -> None:
        self._end(CHAT, (await Client(self.http, origin="https://a.example").ask("OPTIONS", CHAT)).status, "unknown")

    async def bad_name(self, tenant: str) -> None:
        reply = await self.client(tenant).post(CHAT, chat(SECRET), {"x-request-id": "no name"})
        self._end(CHAT, reply.status, "unknown")  # a name is looked at before the key


@asynccontextmanager
async def recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fakes: list[FakeTarget] | None = None, **settings: Any
) -> AsyncIterator[tuple[Harness, Client, Lines, Kept]]:
    """A gateway whose lines and spans are kept."""
    file, kept, lines = folder / "tenants.toml", Kept(), Lines()
    tables = [f'[[tenant]]\nname = "{name}"\nkey_sha256 = ["{digest(name)}"]' for name in TENANTS]
    file.write_text("\n".join(tables) + "\nmax_requests = 0\n")
    made = tracing.OtelTracer(tracing.provider("gateway", kept))
    monkeypatch.setattr(tracing, "tracer", lambda *arguments: made)
    logger = logging.getLogger("services.gateway.access")
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.addHandler(lines)
    try:
        fakes = fakes or [FakeTarget(slots=AT_ONCE, keys=KeyStore())]
        async with serving(folder, fakes, tenants=str(file), max_requests=10_000, **settings) as (one, client):
            yield one, client, lines, kept
    finally:
        logger.removeHandler(lines)


def series(text: str, name: str) -> dict[tuple[str, ...], float]:
    """The series of a metric of the page that are not 0, by its own labels' values."""
    found = {}
    for labels, value in re.findall(rf"^paceline_{name}{{(.*)}} (\S+)$", text, re.MULTILINE):
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        assert pairs.pop("model_name") == "fake"
        assert pairs.pop("pair") == ""
        if float(value):
            found[tuple(pairs[name] for name in sorted(pairs))] = float(value)
    return found


async def settled(lines: Lines, calls: int) -> None:
    async with asyncio.timeout(SETTLED_S):
        while len(lines.texts) < calls:
            await asyncio.sleep(0.01)


async def test_what_clients_are_told_is_what_lines_counters_and_spans_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    calls, draw = 2_000 if full else 240, random.Random(63)
    async with recording(tmp_path, monkeypatch) as (one, client, lines, kept):
        crowd = Crowd(one, client)
        kinds = crowd.kinds()
        work = [(kinds[number % len(kinds)], draw.choice("ab")) for number in range(calls)]
        draw.shuffle(work)
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(kind: Callable[[str], Awaitable[None]], tenant: str) -> None:
            async with places:
                await kind(tenant)

        await asyncio.gather(*(ask(*each) for each in work))
        await settled(lines, calls)
        text = generate_latest(one.app._server._registry).decode()
    told = crowd.told
    assert {code for _, code in told.ends} > {"OK", "UNAUTHENTICATED", "NOT_FOUND", "RESOURCE_EXHAUSTED", "CANCELLED"}
    agree(told, lines.lines, text)
    spans = [span for span in kept.spans if span.kind is SpanKind.SERVER]
    traced(told, spans)
    everything = "\n".join(lines.texts) + "\n".join(span.to_json() for span in kept.spans)
    assert SECRET not in everything
    assert SECRET.replace(" ", "-") not in everything
    assert {line["trace_id"] for line in lines.lines} == {
        f"{span.context.trace_id:032x}" for span in spans if span.context
    }


def agree(told: Told, lines: list[dict[str, Any]], text: str) -> None:
    """Lines and counters say what clients were told."""
    assert Counter((line["endpoint"], line["code"]) for line in lines) == told.ends
    assert series(text, "gateway_requests_total") == {(code, end): n for (end, code), n in told.ends.items()}
    assert Counter((line["tenant"], line["code"]) for line in lines) == told.tenants
    assert series(text, "gateway_tenant_requests_total") == {
        (code, name): n for (name, code), n in told.tenants.items()
    }
    assert Counter(line.get("status", 0) for line in lines) == told.statuses
    refused = [line for line in lines if line["message"] == "request refused"]
    assert {line["code"] for line in refused} == {code for _, code in told.ends} - {"OK", "CANCELLED"}
    assert len(refused) == sum(n for (_, code), n in told.ends.items() if code not in ("OK", "CANCELLED"))
    stayed = [line for line in lines if line["code"] == "OK" and "prompt_tokens" in line]
    for name, wanted in (("prompt_tokens", told.prompt), ("completion_tokens", told.completion)):
        found: Counter[str] = Counter()
        for line in stayed:
            found[line["tenant"]] += line[name]
        assert found == wanted
    assert Counter(reason for line in stayed for reason in line["finish_reason"].split(",")) == told.finishes
    assert series(text, "gateway_finishes_total") == {(reason,): n for reason, n in told.finishes.items()}
    assert {line["served_by"] for line in stayed} == {"pair-0"}
    left = [line for line in lines if line["code"] == "CANCELLED"]
    asked = sum(told.prompt.values()) + sum(line["prompt_tokens"] for line in left)
    assert sum(series(text, "gateway_prompt_tokens_total").values()) == asked, "a refused prompt is nobody's"
    lengths = len(left) + sum(n for (end, code), n in told.ends.items() if code == "OK" and end in GENERATING)
    assert series(text, "request_prompt_length_count") == {(): lengths}
    assert all(line["drafted"] == DRAFTED * line["rounds"] for line in (*stayed, *left)), (
        "those of a client that left too"
    )
    gone = sum(line["completion_tokens"] for line in left)
    counted = series(text, "gateway_generation_tokens_total")
    assert sum(counted.values()) == sum(told.completion.values()) + gone
    assert series(text, "gateway_delivered_tokens_total") == {(): sum(counted.values())}
    intervals = series(text, "inter_token_seconds_count")[()]
    assert intervals == told.later_tokens + gone - len(left), "one observation for each token but the first"
    assert sum(series(text, "time_to_first_token_seconds_count").values()) == told.first_tokens + len(left)


def traced(told: Told, spans: list[ReadableSpan]) -> None:
    """Each call has one root span, by the conventions."""
    found: Counter[tuple[str, str]] = Counter()
    tokens: Counter[str] = Counter()
    for span in spans:
        facts = dict(span.attributes or {})
        if "rpc.system" in facts:
            endpoint = f"/{facts['rpc.service']}/{facts['rpc.method']}" if facts["rpc.service"] else "other"
            code = Code(int(str(facts["rpc.grpc.status_code"]))).name
        else:
            endpoint = str(facts["http.route"])
            left = facts.get("gen_ai.response.finish_reasons") == () and not facts.get("error.type")
            code = OF_STATUS.get(int(str(facts["http.response.status_code"])), "CANCELLED" if left else "OK")
        found[endpoint, code] += 1
        if code == "OK" and endpoint in GENERATING:
            assert facts["gen_ai.response.model"] == "fake"
            assert facts["paceline.pair"] == "pair-0"
            tokens[str(facts["paceline.tenant"])] += int(str(facts["gen_ai.usage.output_tokens"]))
    assert found == told.ends
    assert tokens == told.completion


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [({"access_log": False}, set()), ({"access_log_refused": 0.0}, {"request ended"})],
    ids=["no lines", "none of refused calls"],
)
async def test_lines_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], wanted: set[str]
) -> None:
    async with recording(tmp_path, monkeypatch, **settings) as (one, client, lines, kept):
        crowd = Crowd(one, client)
        await crowd.http_no_key("a")
        await crowd.models("a")
        text = generate_latest(one.app._server._registry).decode()
    assert {line["message"] for line in lines.lines} == wanted
    assert len(kept.spans) == sum(series(text, "gateway_requests_total").values()) == 2


async def test_metrics_name_a_bounded_set_of_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with recording(tmp_path, monkeypatch, metrics_tenants=("b",)) as (one, client, lines, _):
        crowd = Crowd(one, client)
        for tenant in "ab":
            await crowd.models(tenant)
        text = generate_latest(one.app._server._registry).decode()
    assert series(text, "gateway_tenant_requests_total") == {("OK", "other"): 1, ("OK", "b"): 1}
    assert [line["tenant"] for line in lines.lines] == ["a", "b"], "the log names each"
