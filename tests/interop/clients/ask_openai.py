"""Asks with openai's client, in both its forms; prints what it got as JSON."""

import asyncio
import json
import sys
from typing import Any

import openai
from pydantic import BaseModel

HELLO = [{"role": "user", "content": "hello"}]
PARAMETERS = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
TOOLS = [{"type": "function", "function": {"name": "Weather", "description": "By town.", "parameters": PARAMETERS}}]


def answered(message: Any) -> list[Any]:
    """The chat with the model's own message and what its tool says."""
    return [*HELLO, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21"}]


def sync(given: dict[str, str], model: str) -> dict[str, Any]:
    """The usual client."""
    client = openai.OpenAI(**given)
    chats, texts = client.chat.completions, client.completions
    first = chats.create(model=model, messages=HELLO, tools=TOOLS).choices[0].message
    call = first.tool_calls[0]
    streamed = chats.create(model=model, messages=HELLO, stream=True, stream_options={"include_usage": True})
    *pieces, usage = streamed
    with chats.stream(model=model, messages=HELLO, tools=TOOLS) as events:
        final = events.get_final_completion().choices[0].message
    return {
        "chat": chats.create(model=model, messages=HELLO).choices[0].message.content,
        "stream": "".join(piece.choices[0].delta.content or "" for piece in pieces),
        "counted": usage.usage.completion_tokens,
        "completion": texts.create(model=model, prompt="def f():").choices[0].text,
        "completion_stream": "".join(
            piece.choices[0].text for piece in texts.create(model=model, prompt="def f():", stream=True)
        ),
        "call": [call.function.name, json.loads(call.function.arguments)],
        "streamed_call": [final.tool_calls[0].function.name, json.loads(final.tool_calls[0].function.arguments)],
        "result": chats.create(model=model, messages=answered(first), tools=TOOLS).choices[0].message.content,
        "streamed_result": chats.create(model=model, messages=answered(final), tools=TOOLS).choices[0].message.content,
        "models": [one.id for one in client.models.list()],
        "errors": errors(given, model),
    }


OTHER_TOOL = {"type": "function", "function": {"name": "other"}}


def errors(given: dict[str, str], model: str) -> dict[str, Any]:
    """The client's own exceptions."""
    found = {}
    client, stranger = openai.OpenAI(**given), openai.OpenAI(**{**given, "api_key": "wrong"})
    for name, one, wish in (
        ("key", stranger, {"model": model}),
        ("model", client, {"model": "other"}),
        ("option", client, {"model": model, "tools": TOOLS, "tool_choice": OTHER_TOOL}),
    ):
        try:
            one.chat.completions.create(messages=HELLO, **wish)
        except openai.APIStatusError as error:
            found[name] = [type(error).__name__, error.status_code, error.param]
    return found


class Weather(BaseModel):
    """The weather of a town."""

    town: str


def parsed(given: dict[str, str], model: str) -> dict[str, Any]:
    """Answers and calls as objects, and the Responses API: whole, streamed, with a tool and as an object."""
    client = openai.OpenAI(**given)
    asked: Any = [{"role": "user", "content": "Report."}]
    report = client.chat.completions.parse(model=model, messages=asked, response_format=Weather).choices[0].message
    strict = openai.pydantic_function_tool(Weather)
    call = client.chat.completions.parse(model=model, messages=HELLO, tools=[strict]).choices[0].message.tool_calls[0]
    needed = client.chat.completions.parse(model=model, messages=HELLO, tools=[strict], tool_choice="required")
    tool: Any = {"type": "function", "name": "Weather", "parameters": PARAMETERS}
    first = client.responses.create(model=model, input="hello", tools=[tool])
    (made,) = [item for item in first.output if item.type == "function_call"]
    told = {"type": "function_call_output", "call_id": made.call_id, "output": "21"}
    talk = [*HELLO, *first.output, told]
    with client.responses.stream(model=model, input="hello") as events:
        streamed = events.get_final_response().output_text
    return {
        "parse": report.parsed.town,
        "parsed_call": call.function.parsed_arguments.town,
        "required": needed.choices[0].message.tool_calls[0].function.parsed_arguments.town,
        "responses": client.responses.create(model=model, input="hello").output_text,
        "responses_stream": streamed,
        "responses_call": [made.name, json.loads(made.arguments)],
        "responses_result": client.responses.create(model=model, input=talk, tools=[tool]).output_text,
        "responses_parse": client.responses.parse(model=model, input="Report.", text_format=Weather).output_parsed.town,
    }


async def asynchronous(given: dict[str, str], model: str) -> dict[str, Any]:
    """The client for asyncio."""
    async with openai.AsyncOpenAI(**given) as client:
        chats = client.chat.completions
        chat, text = await asyncio.gather(
            chats.create(model=model, messages=HELLO), client.completions.create(model=model, prompt="def f():")
        )
        stream = await chats.create(model=model, messages=HELLO, stream=True)
        pieces = [piece.choices[0].delta.content or "" async for piece in stream]
        first = (await chats.create(model=model, messages=HELLO, tools=TOOLS)).choices[0].message.tool_calls[0]
        found = {"chat": chat.choices[0].message.content, "completion": text.choices[0].text, "stream": "".join(pieces)}
        found["call"] = [first.function.name, json.loads(first.function.arguments)]
        try:
            await chats.create(model="other", messages=HELLO)
        except openai.NotFoundError as error:
            found["error"] = error.param
    return found


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    access = {"base_url": base, "api_key": key}
    found = sync(access, served) | {"parsed": parsed(access, served)}
    print(json.dumps(found | {"async": asyncio.run(asynchronous(access, served))}))
