"""Forced and forbidden tokens over HTTP and gRPC, by a real pair whose answers are known."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from tokenizers import Tokenizer

from services.common.pb.paceline.v1 import inference_pb2, inference_pb2_grpc, target_pb2, types_pb2
from services.common.serving.channel import connect
from services.gateway.app import GatewayApp
from services.gateway.settings import GatewaySettings
from tests.integration.gateway_stack import rich
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import running
from tests.support.http_client import Client
from tests.support.scripted_checkpoint import write_scripted
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair

CHAT, TEXT = "<|chat|>", "<|text|>"
THOUGHTS = tuple(f" t{number:02}" for number in range(24))
SCRIPTS = {
    CHAT: ("<think>", *THOUGHTS, "</think>", " It", " is", " warm."),
    TEXT: (" return", " 42"),
}
TEMPLATE = (
    "{# <think> </think> #}{% for message in messages %}{{ message.content }}{% endfor %}"
    f"{CHAT}{{% if enable_thinking is defined and not enable_thinking %}}<think></think>{{% endif %}}"
)
CHATS, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
ANSWER = "It is warm."


@dataclass
class Served:
    """The pair behind a gateway."""

    pair: PairProcesses
    http: Client
    stub: inference_pb2_grpc.InferenceServiceAsyncStub
    model: str
    ids: dict[str, int]
    metrics: str

    async def chat(self, **fields: Any) -> Any:
        """The answer to a chat."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 60,
            "temperature": 0,
        }
        reply = await self.http.post(CHATS, body | fields)
        assert reply.status == 200, reply.body
        return reply.json

    async def thought(self, **fields: Any) -> tuple[int, str]:
        """How many of its tokens a chat thinks, and what it says behind them."""
        said = await self.chat(**fields)
        message = said["choices"][0]["message"]
        thought = message.get("reasoning_content", "")
        assert "".join(THOUGHTS).lstrip().startswith(thought)
        count = said["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert count == 0 or count - thought.count("t") in (2, 3), "the tags, and the line before the last"
        return thought.count("t"), message["content"]


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        target = write_scripted(Path(folder) / "model", TEMPLATE, SCRIPTS, TEXT)
        models, flags = TinyPair(target, target), ["--slots", "4", "--drafter-model", "none"]
        pair = PairProcesses(Path(folder), models, flags, drafter_flags=("--proposer", "ngram"))
        async with running(pair):
            settings = GatewaySettings(
                tokenizer=str(target),
                targets=(pair.bound["grpc"],),
                http="127.0.0.1:0",
                propagation_s=0.0,
                effort_budgets=("none=0", "low=3"),
            )
            app = GatewayApp(settings)
            bound = await app.start()
            try:
                async with connect(bound.grpc) as channel:
                    stub = cast(Any, inference_pb2_grpc.InferenceServiceStub(channel))
                    http = Client(bound.http)
                    model = (await http.get("/v1/models")).json["data"][0]["id"]
                    vocabulary = Tokenizer.from_file(str(target / "tokenizer.json")).get_vocab()
                    yield Served(pair, http, stub, model, vocabulary, bound.metrics)
            finally:
                await app.drain()


async def test_tokens_are_forced_and_forbidden() -> None:
    async with serving() as served:
        await budgets(served)
        await budgets_of_other_apis(served)
        await words(served)
        await token_ids(served)
        await over_grpc(served)
        await what_is_refused(served)
        await ends(served)
        await a_request_that_moves(served)
        state = served.pair.describe()
        assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)


async def budgets(served: Served) -> None:
    assert await served.thought() == (len(THOUGHTS), ANSWER), "without a bound the thought is the model's"
    for fields in ({}, {"paceline": {"speculation": False}}, {"reasoning_effort": "high"}):
        for budget in (0, 1, 7, len(THOUGHTS) - 1):
            assert await served.thought(thinking_token_budget=budget, **fields) == (budget, ANSWER)
        assert await served.thought(thinking_token_budget=len(THOUGHTS) + 1, **fields) == (len(THOUGHTS), ANSWER)
    assert await served.thought(reasoning_effort="low") == (3, ANSWER)
    assert await served.thought(reasoning_effort="medium") == (len(THOUGHTS), ANSWER)
    assert await served.thought(reasoning_effort="low", thinking_token_budget=5) == (5, ANSWER)
    assert await served.thought(thinking={"type": "enabled", "budget_tokens": 4}) == (4, ANSWER)
    assert (await served.thought(thinking={"type": "disabled"}))[0] == 0
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": "warm"}}}
    assert await served.thought(thinking_token_budget=2, response_format=form) == (2, '"warm"')


async def counted(address: str, name: str) -> dict[str, int]:
    """A counter by the reason of an end."""
    text = (await Client(address).get("/metrics")).body.decode()
    found = re.findall(rf'^{name}\{{[^}}]*finish_reason="(\w+)"[^}}]*\}} (\S+)$', text, re.MULTILINE)
    return {reason: int(float(value)) for reason, value in found if float(value)}


async def ends(served: Served) -> None:
    """Answers are counted by what ended them, by whichever API they were asked; the target may have gone on."""
    before = await counted(served.metrics, "paceline_gateway_finishes_total")
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 60}
    asked: list[tuple[str, dict[str, Any], str, int]] = [
        (CHATS, chat | {"stop": ["t05"]}, "stop_string", 1),
        (CHATS, chat | {"stop": ["is wa"], "n": 2}, "stop_string", 2),
        (CHATS, chat | {"max_tokens": 3}, "length", 1),
        (COMPLETIONS, {"prompt": TEXT, "stop": " 42"}, "stop_string", 1),
        (COMPLETIONS, {"prompt": [TEXT, TEXT], "stop": ["tur"]}, "stop_string", 2),
        (COMPLETIONS, {"prompt": TEXT}, "stop_token", 1),
        (MESSAGES, chat | {"stop_sequences": ["warm"]}, "stop_string", 1),
        (MESSAGES, chat | {"max_tokens": 3}, "length", 1),
        (RESPONSES, {"input": "hi", "max_output_tokens": 3}, "length", 1),
        (RESPONSES, {"input": "hi"}, "stop_token", 1),
    ]
    expected = Counter(before)
    for stream in (False, True):
        for path, body, reason, count in asked:
            fields = {"model": served.model, "temperature": 0, "stream": stream}
            reply = await served.http.post(path, body | fields)
            assert reply.status == 200, reply.body
            expected[reason] += count
    assert await counted(served.metrics, "paceline_gateway_finishes_total") == dict(expected)


async def budgets_of_other_apis(served: Served) -> None:
    asked = {"model": served.model, "temperature": 0}
    message = asked | {"max_tokens": 60, "messages": [{"role": "user", "content": "hi"}]}
    reply = await served.http.post(MESSAGES, message | {"thinking": {"type": "enabled", "budget_tokens": 6}})
    thought, text = reply.json["content"]
    assert (thought["thinking"].count("t"), text["text"]) == (6, ANSWER)
    reply = await served.http.post(RESPONSES, asked | {"input": "hi", "reasoning": {"effort": "low"}})
    thought, said = reply.json["output"]
    assert (thought["content"][0]["text"].count("t"), said["content"][0]["text"]) == (3, ANSWER)


async def words(served: Served) -> None:
    plain = {"model": served.model, "prompt": "x", "max_tokens": 2, "temperature": 0}
    said = await served.http.post(COMPLETIONS, plain)
    assert said.json["choices"][0]["text"] == " return 42"
    for bad in ([" 42"], ["42"]):
        said = await served.http.post(COMPLETIONS, plain | {"bad_words": bad})
        assert said.json["choices"][0]["text"] == " return", "behind a blank too"
    only = [served.ids["A"], served.ids["B"]]
    said = await served.http.post(
        COMPLETIONS, plain | {"allowed_token_ids": only, "temperature": 2, "seed": 7, "max_tokens": 40}
    )
    assert set(said.json["choices"][0]["text"]) == {"A", "B"}
    assert said.json["choices"][0]["finish_reason"] == "length", "no end is allowed"


async def token_ids(served: Served) -> None:
    """Whole and streamed: the ids of the prompt as /tokenize tells them, and as many as the usage counts."""
    fields = {"return_token_ids": True, "n": 2, "max_tokens": 40, "temperature": 0, "model": served.model}
    chat = fields | {"messages": [{"role": "user", "content": "hi"}]}
    text = fields | {"prompt": ["x", "yz"]}
    for path, body in ((CHATS, chat), (COMPLETIONS, text)):
        whole = (await served.http.post(path, body)).json
        prompts: dict[int, Any] = {}
        found: dict[int, list[int]] = {}
        events = [event async for event in served.http.stream(path, body | {"stream": True}) if event != "[DONE]"]
        for event in events:
            for choice in event["choices"]:
                found.setdefault(choice["index"], []).extend(choice.get("token_ids", []))
                prompts.setdefault(choice["index"], choice.get("prompt_token_ids"))
        assert [found[index] for index in sorted(found)] == [one["token_ids"] for one in whole["choices"]]
        assert sum(map(len, found.values())) == whole["usage"]["completion_tokens"]
        if path == CHATS:
            assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
            assert not any("prompt_token_ids" in event for event in events[1:])
            asked = {"model": served.model, "messages": body["messages"]}
            assert (await served.http.post("/tokenize", asked)).json["tokens"] == whole["prompt_token_ids"]
        else:
            assert [prompts[index] for index in sorted(prompts)] == [
                one["prompt_token_ids"] for one in whole["choices"]
            ]
            assert [len(one["prompt_token_ids"]) for one in whole["choices"]] == [1, 1, 2, 2]
    assert "token_ids" not in (await served.chat())["choices"][0]


async def over_grpc(served: Served) -> None:
    chat = inference_pb2.Chat(messages=[inference_pb2.ChatMessage(role="user", content="hi")])
    asked = inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(chat=chat), thinking_budget=4)
    asked.structured_output.regex = "a|b"
    asked.return_token_ids = True
    pieces = [piece async for piece in served.stub.Generate(asked)]
    text = "".join(piece.delta.text for piece in pieces)
    assert text in {f"<think> t00 t01 t02 t03\n</think>{letter}" for letter in "ab"}
    told = await served.stub.Tokenize(inference_pb2.TokenizeRequest(prompt=asked.prompt))
    assert list(pieces[-1].final.prompt_token_ids) == list(told.tokens.ids)
    words = inference_pb2.GenerateRequest(prompt=inference_pb2.Prompt(text="x"), bad_words=["42"])
    words.stopping.max_tokens = 2
    whole = await served.stub.GenerateWhole(inference_pb2.GenerateWholeRequest(request=words))
    assert (whole.text, len(whole.final.prompt_token_ids)) == (" return", 0)
    words.allowed_token_ids.append(10**6)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await served.stub.GenerateWhole(inference_pb2.GenerateWholeRequest(request=words))
    assert rich(error.value).field == "allowed_token_ids"


async def what_is_refused(served: Served) -> None:
    """By the client's own names."""
    body = {"model": served.model, "messages": [{"role": "user", "content": "hi"}]}
    thinking = {"type": "enabled", "budget_tokens": 3}
    for fields, param in (
        ({"bad_words": [""]}, "bad_words"),
        ({"bad_words": ["x"] * 129}, "bad_words"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [10**6]}, "allowed_token_ids"),
        ({"allowed_token_ids": [5], "response_format": {"type": "json_object"}}, "allowed_token_ids"),
        ({"thinking_token_budget": -1}, "thinking_token_budget"),
        ({"thinking_budget": 4}, "thinking_budget"),
        ({"thinking_token_budget": 4, "thinking": thinking}, "thinking.budget_tokens"),
    ):
        reply = await served.http.post(CHATS, body | cast(dict[str, Any], fields))
        assert (reply.status, reply.error["param"]) == (400, param), reply.body


async def a_request_that_moves(served: Served) -> None:
    """The rule travels: it goes on in the middle of a forced end, as a preempted one does."""
    ids = served.ids
    prompt = (ids["x"], ids[CHAT])

    def ruled(name: str, output: tuple[int, ...]) -> target_pb2.Start:
        frame = start(name, (*prompt, *output), 30)
        frame.prompt_length = len(prompt)
        frame.rule.thought.MergeFrom(target_pb2.Thought(opening=ids["<think>"], closing=ids["</think>"], budget=2))
        frame.rule.thought.ending.extend([ids["A"], ids["B"], ids["</think>"]])
        frame.rule.banned.append(types_pb2.TokenIds(ids=[ids[" is"], ids[" warm."]]))
        return frame

    async with SessionClient(served.pair.bound["grpc"]) as client:
        whole = await client.start(ruled("whole", ()))
        await whole.ended()
        names = ["<think>", " t00", " t01", "A", "B", "</think>", " It", " is"]
        assert whole.tokens[:8] == [ids[name] for name in names]
        assert ids[" warm."] not in whole.tokens
        for kept in range(1, len(whole.tokens)):
            rest = await client.start(ruled(f"rest{kept}", tuple(whole.tokens[:kept])))
            await rest.ended()
            assert rest.tokens == whole.tokens[kept:]
        broken = ruled("broken", ())
        broken.rule.thought.ending.append(ids["A"])
        refused = await client.start(broken)
        assert (await refused.ended()).error.reason == types_pb2.ERROR_REASON_INVALID_FIELD
