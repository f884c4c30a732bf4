"""Answers of the embedded pair in the form that clients ask for, over HTTP and gRPC, through real processes."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import jsonschema
import pytest

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, target_pb2, types_pb2
from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars
from services.common.serving.channel import connect
from services.gateway.app import GatewayApp
from services.gateway.settings import GatewaySettings
from tests.integration.gateway_stack import rich
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import running
from tests.support.http_client import Client, Reply
from tests.support.schemas import schema
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair

EMBEDDED = Path(__file__).parents[2] / "models" / "embedded"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass
class Served:
    """The pair behind a gateway."""

    pair: PairProcesses
    http: Client
    stub: inference_pb2_grpc.InferenceServiceAsyncStub

    async def chat(self, **fields: Any) -> Reply:
        """A chat; it must not fail."""
        body = {"model": "", "messages": [{"role": "user", "content": "Ada is 36."}], "max_tokens": 120, "seed": 7}
        model = (await self.http.get("/v1/models")).json["data"][0]["id"]
        return await self.http.post(CHAT, body | {"model": model} | fields)

    async def content(self, **fields: Any) -> str:
        """What it says; it ends by itself."""
        reply = await self.chat(**fields)
        assert reply.status == 200, reply.body
        (choice,) = reply.json["choices"]
        assert choice["finish_reason"] == "stop"
        return str(choice["message"]["content"])


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        models = TinyPair(EMBEDDED / "target", EMBEDDED / "drafter")
        async with running(PairProcesses(Path(folder), models, ["--context-limit", "512", "--slots", "4"])) as pair:
            settings = GatewaySettings(
                tokenizer=str(models.target),
                targets=(pair.bound["grpc"],),
                http="127.0.0.1:0",
                propagation_s=0.0,
                free_grammars=True,
            )
            app = GatewayApp(settings)
            bound = await app.start()
            try:
                async with connect(bound.grpc) as channel:
                    stub = cast(Any, inference_pb2_grpc.InferenceServiceStub(channel))
                    yield Served(pair, Client(bound.http), stub)
            finally:
                await app.drain()


async def test_answers_have_the_form_that_was_asked_for(full: bool) -> None:
    async with serving() as served:
        await the_schemas(served, 10 if full else 1)
        await the_other_forms(served)
        await required_calls(served, 12 if full else 3)
        await forms_of_other_apis(served)
        await over_grpc(served)
        await what_is_refused(served)
        await a_request_that_moves(served)
        state = await asyncio.to_thread(served.pair.describe)
        assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
        assert "rules" in state.features


async def the_schemas(served: Served, count: int) -> None:
    """The same text with speculation and without, whole and streamed."""
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    for temperature in (0, 0.8):
        said = await served.content(response_format=wanted, temperature=temperature)
        jsonschema.validate(json.loads(said), PERSON)
        off = {"speculation": False}
        assert said == await served.content(response_format=wanted, temperature=temperature, paceline=off)
        events = [event async for event in streamed(served, response_format=wanted, temperature=temperature)]
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        assert said == "".join(delta.get("content", "") for delta in deltas)
    for seed in range(count):
        reply = await served.chat(structured_outputs={"json": schema(seed)}, temperature=1.0, max_tokens=200)
        assert reply.status == 200, reply.body
        (choice,) = reply.json["choices"]
        if choice["finish_reason"] == "stop":
            jsonschema.Draft202012Validator(schema(seed)).validate(json.loads(choice["message"]["content"]))


async def streamed(served: Served, **fields: Any) -> AsyncIterator[Any]:
    model = (await served.http.get("/v1/models")).json["data"][0]["id"]
    body = {"model": model, "messages": [{"role": "user", "content": "Ada is 36."}], "max_tokens": 120, "seed": 7}
    async for event in served.http.stream(CHAT, body | fields | {"stream": True}):
        if event != "[DONE]":
            yield event


async def the_other_forms(served: Served) -> None:
    assert isinstance(json.loads(await served.content(response_format={"type": "json_object"}, temperature=0)), dict)
    assert await served.content(structured_outputs={"choice": ["maybe", "yes, 'sure'"]}) in ("maybe", "yes, 'sure'")
    date = await served.content(guided_regex=r"\d{4}-\d\d", ignore_eos=True, min_tokens=50)
    assert len(date) == 7, "the end of a regular expression ends the answer"
    assert await served.content(guided_grammar='root ::= "a" b\nb ::= "b" | "c"') in ("ab", "ac")
    assert await served.content(structured_outputs={"grammar": 'start: "x" "y"'}) == "xy"
    model = (await served.http.get("/v1/models")).json["data"][0]["id"]
    body = {"model": model, "prompt": "x", "guided_json": json.dumps(PERSON), "max_tokens": 120, "temperature": 0}
    (choice,) = (await served.http.post(COMPLETIONS, body)).json["choices"]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["text"]), PERSON)


async def required_calls(served: Served, count: int) -> None:
    """A call is whole, its arguments follow their schema, and a broken one is pointed at."""
    nothing = {"type": "object", "maxProperties": 0}
    other: dict[str, Any] = {"type": "function", "function": {"name": 'odd "name"', "parameters": nothing}}
    tools: list[dict[str, Any]] = [{"type": "function", "function": {"name": "keep", "parameters": PERSON}}, other]
    tools[0]["function"]["strict"] = True
    named = {"type": "function", "function": {"name": "keep"}}
    for choice, temperature in (("required", 0.9), (named, 0.0), (named, 0.8)):
        asked: dict[str, Any] = {
            "tools": tools,
            "tool_choice": choice,
            "temperature": temperature,
            "parallel_tool_calls": False,
        }
        reply = await served.chat(**asked)
        assert reply.status == 200, reply.body
        (said,) = reply.json["choices"]
        (call,) = said["message"]["tool_calls"]
        assert (said["finish_reason"], said["message"]["content"]) == ("tool_calls", None)
        assert choice == "required" or call["function"]["name"] == "keep"
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
        jsonschema.validate(json.loads(call["function"]["arguments"]), schemas[call["function"]["name"]])
    await calls_or_a_form(served, tools, count)
    broken = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "foo"}}}}}
    for fields, param in (
        ({"tools": [*tools, broken], "tool_choice": "required"}, "tools[2].function.parameters#/properties/a"),
        ({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": tools, "tool_choice": "required", "guided_regex": "a"}, "guided_regex"),
    ):
        reply = await served.chat(**cast(dict[str, Any], fields))
        assert (reply.status, reply.error["param"]) == (400, param), reply.body


async def forms_of_other_apis(served: Served) -> None:
    """Anthropic's and the Responses API have a form of the answer too, and name it in their own words."""
    model = (await served.http.get("/v1/models")).json["data"][0]["id"]
    broken = {"type": "object", "properties": {"a": {"type": "foo"}}}
    # Neither API has a seed, and a sampled answer may be blanks up to its limit.
    greedy = {"model": model, "temperature": 0}
    message = greedy | {"max_tokens": 120, "messages": [{"role": "user", "content": "Ada is 36."}]}
    response = greedy | {"input": "Ada is 36.", "max_output_tokens": 120}

    async def ask(schema: Any) -> tuple[Reply, Reply]:
        form = {"type": "json_schema", "schema": schema}
        return (
            await served.http.post("/v1/messages", message | {"output_config": {"format": form, "effort": "low"}}),
            await served.http.post("/v1/responses", response | {"text": {"format": form | {"name": "x"}}}),
        )

    first, second = await ask(PERSON)
    assert (first.json["stop_reason"], second.json["status"]) == ("end_turn", "completed")
    jsonschema.validate(json.loads(first.json["content"][0]["text"]), PERSON)
    jsonschema.validate(json.loads(second.json["output"][0]["content"][0]["text"]), PERSON)
    first, second = await ask(broken)
    assert first.json["error"]["message"].startswith("output_config.format.schema#/properties/a: ")
    assert (second.status, second.error["param"]) == (400, "text.format.schema#/properties/a")


async def calls_or_a_form(served: Served, tools: list[dict[str, Any]], count: int) -> None:
    """Where calls may come and need not, the answer is calls or has its form; a required call leaves it no place."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes", "no"]}}}
    unmaskable = {"type": "function", "function": {"name": "g", "parameters": {"not": {"type": "string"}}}}
    kinds = set()
    for seed in range(count):
        reply = await served.chat(
            tools=[*tools, unmaskable], response_format=form, temperature=1.5, seed=seed, max_tokens=300
        )
        assert reply.status == 200, reply.body
        (said,) = reply.json["choices"]
        kinds.add(said["finish_reason"])
        if said["finish_reason"] == "stop":
            assert json.loads(said["message"]["content"]) in ("yes", "no")
    assert kinds >= {"stop"} and kinds <= {"stop", "tool_calls", "length"}
    reply = await served.chat(tools=tools, tool_choice="required", response_format=form, parallel_tool_calls=False)
    assert reply.json["choices"][0]["message"]["tool_calls"], reply.body


async def over_grpc(served: Served) -> None:
    choices = inference_pb2.Constraint(choices=inference_pb2.Choices(texts=["left", "right"]))
    assert await generated(served, choices) in ("left", "right")
    assert await generated(served, inference_pb2.Constraint(regex="[ab]{3}")) in {
        x + y + z for x in "ab" for y in "ab" for z in "ab"
    }
    jsonschema.validate(
        json.loads(await generated(served, inference_pb2.Constraint(json_schema=json.dumps(PERSON)))), PERSON
    )
    for broken, field in (
        (inference_pb2.Constraint(), "structured_output"),
        (inference_pb2.Constraint(regex="("), "structured_output.regex"),
        (inference_pb2.Constraint(json_schema='{"type": "object", "properties": {"a": {"type": "x"}}}'),
         "structured_output.json_schema#/properties/a"),
        (inference_pb2.Constraint(choices=inference_pb2.Choices()), "structured_output.choices.texts"),
    ):  # fmt: skip
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await generated(served, broken)
        assert rich(error.value).field == field


async def generated(served: Served, constraint: inference_pb2.Constraint) -> str:
    request = inference_pb2.GenerateRequest(
        prompt=inference_pb2.Prompt(text="hello"),
        sampling=types_pb2.Sampling(temperature=0.7, seed=3),
        stopping=types_pb2.Stopping(max_tokens=120),
        structured_output=constraint,
    )
    pieces = [piece async for piece in served.stub.Generate(request)]
    assert pieces[-1].final.finish_reason == types_pb2.FINISH_REASON_STOP_TOKEN
    return "".join(piece.delta.text for piece in pieces)


async def what_is_refused(served: Served) -> None:
    """By the client's own names, with a pointer into the schema."""
    at = "response_format.json_schema.schema"
    for broken, pointer in (
        (
            {"type": "object", "properties": {"a/b": {"type": "array", "items": {"type": "foo"}}}},
            "/properties/a~1b/items",
        ),
        ({"anyOf": [{"type": "string"}, {"type": "string", "pattern": "(?=a)b"}]}, "/anyOf/1"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {"type": "string"}}}}, "/$defs/a"),
    ):
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": broken}}
        reply = await served.chat(response_format=wanted)
        assert (reply.status, reply.error["param"]) == (400, f"{at}#{pointer}"), reply.body
    for fields, param in (
        ({"guided_regex": "["}, "guided_regex"),
        ({"guided_json": "{"}, "guided_json"),
        ({"structured_outputs": {"grammar": "start: nothing"}}, "structured_outputs.grammar"),
        ({"guided_grammar": "::= ::="}, "guided_grammar"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ):
        reply = await served.chat(**cast(dict[str, Any], fields))
        assert (reply.status, reply.error["param"]) == (400, param), reply.body


async def a_request_that_moves(served: Served) -> None:
    """What a gateway does after a target has died: the rule travels with prompt and committed tokens."""
    grammars = Grammars((EMBEDDED / "target" / "tokenizer.json").read_text(), 1024, (0,))
    rule = grammars.rule(Constraint(Form.JSON, json.dumps(PERSON), "x"))
    async with SessionClient(served.pair.bound["grpc"]) as client:
        whole = ruled("whole", (5, 6, 7), rule.grammar)
        tokens = (await received(client, whole)).tokens
        for kept in (1, len(tokens) // 2, len(tokens) - 1):
            rest = ruled(f"rest{kept}", (5, 6, 7, *tokens[:kept]), rule.grammar)
            rest.prompt_length = 3
            assert (await received(client, rest)).tokens == tokens[kept:]
        broken = ruled("broken", (5, 6, 7), "nonsense")
        await client.start(broken)
        assert (await client.requests["broken"].ended()).error.reason == types_pb2.ERROR_REASON_INVALID_FIELD


def ruled(name: str, ids: tuple[int, ...], grammar: str) -> target_pb2.Start:
    frame = start(name, ids, 120, sampling=types_pb2.Sampling(temperature=0.9, seed=11))
    frame.rule.grammar = grammar
    return frame


async def received(client: SessionClient, frame: target_pb2.Start) -> Any:
    got = await client.start(frame)
    end = await got.ended()
    assert end.finish_reason == types_pb2.FINISH_REASON_STOP_TOKEN
    return got
