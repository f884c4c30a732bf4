"""Chats and completions over HTTP: the same tokens as over gRPC, in the forms of OpenAI's API."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.common.request.spelling import byte_alphabet
from services.gateway.http.schema.replies import ChatChunk, ChatReply, CompletionReply, ModelList
from services.gateway.prompts.tokenizer import load_tokenizer
from tests.integration.gateway_stack import ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, MODELS, chat, completion, serving
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import SPECIAL, build_tokenizer

END = build_tokenizer().get_vocab()[SPECIAL[0]]


def check(form: Any, value: Any) -> Any:
    """The value, if it has exactly the form that the OpenAPI document promises."""
    assert TypeAdapter[Any](form).validate_python(value, strict=True) == value
    return value


async def test_a_completion_has_the_text_of_grpc_and_openais_form(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        expected = await one.ask(ask_for("hello", max_tokens=48))
        assert expected.final is not None
        reply = await http.post(COMPLETIONS, completion("hello", max_tokens=48))
        whole = check(CompletionReply, reply.json)
        assert reply.status == 200
        assert whole["choices"][0]["text"] == expected.text
        assert whole["choices"][0]["finish_reason"] == "length"
        assert whole["choices"][0]["paceline"] == {"finish_reason": "length", "seed": 5}
        speculation = expected.final.speculation
        assert whole["usage"] == {
            "prompt_tokens": expected.final.usage.prompt_tokens,
            "completion_tokens": 48,
            "total_tokens": expected.final.usage.prompt_tokens + 48,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
            "paceline": {
                "rounds": speculation.rounds,
                "drafted": speculation.drafted,
                "accepted": speculation.accepted,
            },
        }
        assert 0 < speculation.rounds < 48
        assert whole["id"] == f"cmpl-{reply.headers['x-request-id']}"


@pytest.mark.parametrize(
    ("path", "make", "form"), [(CHAT, chat, ChatChunk), (COMPLETIONS, completion, CompletionReply)]
)
async def test_a_stream_joins_to_the_whole_answer(tmp_path: Path, path: str, make: Any, form: Any) -> None:
    async with serving(tmp_path) as (_, http):
        whole = (await http.post(path, make(logprobs=True if path == CHAT else 1))).json
        options = {"stream_options": {"include_usage": True}, "paceline": {"drafts": True}}
        asked = make(logprobs=True if path == CHAT else 1, **options)
        *chunks, done = [event async for event in http.stream(path, asked)]
        assert done == "[DONE]"
        for chunk in chunks:
            check(form, chunk)
        *pieces, last = chunks
        assert (last["choices"], last["usage"]) == ([], whole["usage"])
        assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
        assert all(chunk["usage"] is None for chunk in pieces)
        drafted = [chunk["paceline"] for chunk in pieces if "paceline" in chunk]
        told = whole["usage"]["paceline"]
        assert sum(one["accepted"] for one in drafted) == told["accepted"] > 0
        assert sum(one["drafted"] for one in drafted) == told["drafted"] > told["accepted"]
        ends = [chunk["choices"][0]["finish_reason"] for chunk in pieces]
        assert ends == [None] * (len(pieces) - 1) + ["length"]
        if path == CHAT:
            assert pieces[0]["choices"][0]["delta"]["role"] == "assistant"
            text = "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces)
            told = [piece["choices"][0]["logprobs"] for piece in pieces]
            logprobs = [one for each in told if each for one in each["content"]]
            assert text == whole["choices"][0]["message"]["content"]
            assert logprobs == whole["choices"][0]["logprobs"]["content"]
        else:
            text = "".join(piece["choices"][0]["text"] for piece in pieces)
            told = [piece["choices"][0]["logprobs"] for piece in pieces]
            offsets = [one for each in told if each for one in each["text_offset"]]
            assert text == whole["choices"][0]["text"]
            assert offsets == whole["choices"][0]["logprobs"]["text_offset"]


async def test_a_chat_is_rendered_by_the_models_template(tmp_path: Path) -> None:
    turns = [("developer", "Be brief."), ("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    messages = [{"role": role, "content": content} for role, content in turns]
    async with serving(tmp_path) as (one, http):
        whole = check(ChatReply, (await http.post(CHAT, chat(messages=messages))).json)
        tokenizer = load_tokenizer(tmp_path)
        plain = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"})
        prompt = tokenizer.encode_chat(plain)
        tokenizer.close()
        assert [*one.targets[0].starts[0].token_ids] == prompt
        assert whole["usage"]["prompt_tokens"] == len(prompt)


@pytest.mark.parametrize("prompt", ["hi", ["hi"], [7, 8, 9], [[7, 8, 9]]])
async def test_a_prompt_is_text_or_token_ids(tmp_path: Path, prompt: Any) -> None:
    async with serving(tmp_path) as (one, http):
        reply = await http.post(COMPLETIONS, completion(prompt))
        assert reply.status == 200
        sent = [*one.targets[0].starts[0].token_ids]
        assert sent == [7, 8, 9] or load_tokenizer(tmp_path).decode(sent) == "hi"


async def test_defaults_are_openais(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(context_limit=64)]) as (one, http):
        short = {"model": "fake", "prompt": "hi"}
        assert (await http.post(COMPLETIONS, short)).json["usage"]["completion_tokens"] == 16
        said = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
        whole = (await http.post(CHAT, said)).json
        assert whole["usage"]["total_tokens"] == 64, "to the end of the context"
        assert whole["choices"][0]["finish_reason"] == "length"
        assert whole["choices"][0]["paceline"]["finish_reason"] == "context"
        for start in one.targets[0].starts:
            assert start.sampling.temperature == start.sampling.top_p == start.sampling.repetition_penalty == 1.0
            assert not start.HasField("logprobs") and not start.speculation.off


async def test_every_option_reaches_the_target(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.05,
        "seed": -1,
        "logit_bias": {"7": 2, "3": -1.5},
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.25,
        "min_tokens": 2,
        "stop_token_ids": [400],
        "ignore_eos": True,
        "logprobs": True,
        "top_logprobs": 3,
        "max_completion_tokens": 9,
        "max_tokens": 9,
        "paceline": {"speculation": False, "max_draft": 2, "priority": 4},
        "user": "u",
        "store": True,
        "metadata": {"a": [1]},
        "service_tier": "auto",
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "stop": None,
    }
    async with serving(tmp_path) as (one, http):
        assert (await http.post(CHAT, chat(**options), {"idempotency-key": "k"})).status == 200
        start = one.targets[0].starts[0]
    sampling = types_pb2.Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        min_p=0.05,
        seed=2**64 - 1,
        repetition_penalty=1.25,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        logit_bias={7: 2.0, 3: -1.5},
    )
    assert start.sampling == sampling
    stopping = types_pb2.Stopping(max_tokens=9, min_tokens=2, stop_token_ids=[400], ignore_eos=True)
    assert start.stopping == stopping
    assert start.speculation == types_pb2.Speculation(off=True, max_draft=2)
    assert (start.logprobs, start.priority, start.idempotency_key) == (3, 4, "k")


async def test_stop_strings_cut_the_text_as_over_grpc(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        text = (await one.ask(ask_for(max_tokens=48))).text
        stop = text[10:13]
        stopping = types_pb2.Stopping(max_tokens=48, stop=[stop])
        expected = await one.ask(inference_pb2.GenerateRequest(**_parts(ask_for(stopping=stopping))))
        whole = (await http.post(COMPLETIONS, completion(max_tokens=48, stop=stop))).json["choices"][0]
        assert (whole["text"], whole["finish_reason"]) == (expected.text, "stop")
        assert whole["paceline"]["finish_reason"] == "stop_string"


def _parts(request: inference_pb2.GenerateRequest) -> dict[str, Any]:
    return {"prompt": request.prompt, "sampling": request.sampling, "stopping": request.stopping}


async def test_the_models_name_is_the_one_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, http):
        listed = check(ModelList, (await http.get(MODELS)).json)
        assert [model["id"] for model in listed["data"]] == ["fake"]
        assert listed["data"][0]["max_model_len"] == 4096
        assert (await http.get(f"{MODELS}/fake")).json == listed["data"][0]
        for reply in (await http.get(f"{MODELS}/other"), await http.post(CHAT, chat(model="other"))):
            assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")


TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"properties": {"town": {"type": "string"}}}},
    }
]
THOUGHT = "<think>\nhm ü\n</think>\n\nI look.\n"
CALLS = {
    "Hermes": '<tool_call>\n{"name": "weather", "arguments": {"town": "Köln"}}\n</tool_call>',
    "XML": "<tool_call>\n<function=weather>\n<parameter=town>\nKöln\n</parameter>\n</function>\n</tool_call>",
}


def script(text: str) -> tuple[int, ...]:
    """A token for every byte of a text, so that rounds cut it anywhere, and the end."""
    spelled = {byte: character for character, byte in byte_alphabet().items()}
    known = build_tokenizer().get_vocab()
    return (*(known[spelled[byte]] for byte in text.encode()), END)


@pytest.mark.parametrize("form", CALLS)
async def test_thoughts_and_calls_are_told_apart_in_a_stream_and_in_a_whole_answer(tmp_path: Path, form: str) -> None:
    fake = FakeTarget(script=script(THOUGHT + CALLS[form]), eos=(END,))
    async with serving(tmp_path, [fake]) as (_, http):
        asked = chat(tools=TOOLS, max_tokens=500)
        whole = check(ChatReply, (await http.post(CHAT, asked)).json)["choices"][0]
        message = whole["message"]
        assert (message["reasoning_content"], message["content"]) == ("hm ü", "I look.")
        assert [(call["function"]["name"]) for call in message["tool_calls"]] == ["weather"]
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"town": "Köln"}
        assert whole["finish_reason"] == "tool_calls"
        *chunks, _ = [event async for event in http.stream(CHAT, asked)]
        deltas = [check(ChatChunk, chunk)["choices"][0]["delta"] for chunk in chunks]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm ü"
        assert "".join(delta.get("content", "") for delta in deltas) == "I look."
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        assert {call["index"] for call in calls} == {0}
        assert len(calls) > 2, "arguments are told as they are written"
        assert (calls[0]["function"]["name"], calls[0]["type"]) == ("weather", "function")
        arguments = "".join(call["function"]["arguments"] for call in calls)
        assert arguments == message["tool_calls"][0]["function"]["arguments"]
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
        again = [
            *asked["messages"],
            message,
            {"role": "tool", "content": "5", "tool_call_id": message["tool_calls"][0]["id"]},
        ]
        assert (await http.post(CHAT, chat(messages=again, tools=TOOLS))).status == 200, "an answer may be sent back"


async def test_thoughts_and_calls_stay_text_where_nobody_asks(tmp_path: Path) -> None:
    text = THOUGHT + CALLS["Hermes"]
    async with serving(tmp_path, [FakeTarget(script=script(text), eos=(END,))]) as (_, http):
        asked = chat(max_tokens=500, paceline={"reasoning": False}, tools=TOOLS, tool_choice="none")
        whole = (await http.post(CHAT, asked)).json["choices"][0]
        assert whole["message"] == {"role": "assistant", "content": text, "refusal": None}
        assert whole["finish_reason"] == "stop"
        plain = (await http.post(COMPLETIONS, completion(max_tokens=500))).json["choices"][0]
        assert plain["text"] == text


async def test_a_stop_string_that_is_a_special_token_stops_by_its_id(tmp_path: Path) -> None:
    other = build_tokenizer().get_vocab()[SPECIAL[2]]
    fake = FakeTarget(script=(*script("so")[:-1], other, *script("on")), eos=(END,))
    async with serving(tmp_path, [fake]) as (_, http):
        asked = completion(max_tokens=20, stop=[SPECIAL[2]], ignore_eos=True)
        choice = (await http.post(COMPLETIONS, asked)).json["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("so", "stop")


async def test_choices_differ_and_the_first_is_the_only_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        single = (await http.post(COMPLETIONS, completion(n=1))).json
        several = check(CompletionReply, (await http.post(COMPLETIONS, completion(n=8))).json)
        texts = [choice["text"] for choice in several["choices"]]
        assert [choice["index"] for choice in several["choices"]] == [*range(8)]
        assert texts[0] == single["choices"][0]["text"]
        assert len(set(texts)) == 8
        assert several["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]
        assert several["usage"]["completion_tokens"] == 8 * 32
        starts = one.targets[0].starts[1:]
        assert len({start.sampling.seed for start in starts}) == 8
        drawn = (await http.post(COMPLETIONS, completion(seed=None, n=2))).json["choices"]
        assert all(choice["paceline"]["seed"] < 2**53 for choice in drawn), "a program that reads floats may repeat it"
        again = (await http.post(COMPLETIONS, completion(n=8))).json
        assert [choice["text"] for choice in again["choices"]] == texts
        streamed: dict[int, str] = dict.fromkeys(range(8), "")
        async for event in http.stream(COMPLETIONS, completion(n=8)):
            for choice in event["choices"] if event != "[DONE]" else ():
                streamed[choice["index"]] += choice["text"]
        assert [*streamed.values()] == texts


async def test_other_choices_begin_when_the_prompt_is_computed(tmp_path: Path) -> None:
    """Until the first token only one of them is at the target, which then knows the prompt."""
    fake = FakeTarget(pace_s=0.2)
    async with serving(tmp_path, [fake]) as (_, http):
        asking = asyncio.create_task(http.post(COMPLETIONS, completion(n=4, max_tokens=4)))
        async with asyncio.timeout(60.0):
            while not fake.starts:
                await asyncio.sleep(0.005)
            while not fake.committed:
                assert len(fake.starts) == 1
                await asyncio.sleep(0.005)
        assert (await asking).status == 200
        assert len(fake.starts) == 4
