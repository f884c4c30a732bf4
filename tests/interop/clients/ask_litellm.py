"""Asks with LiteLLM; prints what it got as JSON."""

import asyncio
import json
import sys
from typing import Any

import litellm
from pydantic import BaseModel

HELLO = [{"role": "user", "content": "hello"}]
PARAMETERS = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
TOOLS = [{"type": "function", "function": {"name": "Weather", "description": "By town.", "parameters": PARAMETERS}}]


def called(message: Any) -> list[Any]:
    """Name and arguments of the first call."""
    function = message.tool_calls[0].function
    return [function.name, json.loads(function.arguments)]


def answered(message: Any) -> list[Any]:
    """The chat with the model's own message and what its tool says."""
    return [*HELLO, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21"}]


def ask(given: dict[str, str], model: str) -> dict[str, Any]:
    """Everything but errors."""
    chat = {"model": f"openai/{model}", **given}
    text = {"model": f"text-completion-openai/{model}", "prompt": "def f():", **given}
    first = litellm.completion(messages=HELLO, tools=TOOLS, **chat).choices[0].message
    built = litellm.stream_chunk_builder([*litellm.completion(messages=HELLO, tools=TOOLS, stream=True, **chat)])
    final = built.choices[0].message
    pieces = litellm.completion(messages=HELLO, stream=True, **chat)
    return {
        "chat": litellm.completion(messages=HELLO, **chat).choices[0].message.content,
        "stream": "".join(piece.choices[0].delta.content or "" for piece in pieces),
        "counted": litellm.completion(messages=HELLO, **chat).usage.completion_tokens,
        "completion": litellm.text_completion(**text).choices[0].text,
        "completion_stream": "".join(
            piece.choices[0].text or "" for piece in litellm.text_completion(stream=True, **text)
        ),
        "call": called(first),
        "streamed_call": called(final),
        "thought": first.reasoning_content,
        "result": litellm.completion(messages=answered(first), tools=TOOLS, **chat).choices[0].message.content,
        "streamed_result": litellm.completion(messages=answered(final), tools=TOOLS, **chat).choices[0].message.content,
    }


class Report(BaseModel):
    """The weather of a town."""

    town: str


def forms(given: dict[str, str], model: str) -> dict[str, Any]:
    """A form of the answer, a required call, and LiteLLM's translations of two other APIs."""
    asked: Any = [{"role": "user", "content": "Report."}]
    chat: dict[str, Any] = {"model": f"openai/{model}", **given}
    report = litellm.completion(messages=asked, response_format=Report, **chat).choices[0].message.content
    needed = litellm.completion(messages=HELLO, tools=TOOLS, tool_choice="required", **chat).choices[0].message
    response = litellm.responses(input="hello", **chat)
    streamed = [*litellm.responses(input="hello", stream=True, **chat)]
    message = asyncio.run(litellm.anthropic.messages.acreate(messages=HELLO, max_tokens=99, **chat))
    native = {"model": f"anthropic/{model}", "api_key": given["api_key"]}
    root = given["api_base"].removesuffix("/v1")
    return {
        "schema": json.loads(report),
        "required": called(needed),
        "responses": response.output[0].content[0].text,
        "responses_stream": "".join(event.delta for event in streamed if event.type == "response.output_text.delta"),
        "anthropic_adapter": message["content"][0]["text"],
        "anthropic": litellm.completion(messages=HELLO, api_base=root, **native).choices[0].message.content,
    }


def errors(given: dict[str, str], model: str) -> dict[str, Any]:
    """LiteLLM's own exceptions."""
    found = {}
    for name, wish in (("key", {"model": model, "api_key": "wrong"}), ("model", {"model": "other"})):
        asked = {**given, **wish}
        try:
            litellm.completion(messages=HELLO, **{**asked, "model": f"openai/{asked['model']}"})
        except (litellm.AuthenticationError, litellm.NotFoundError) as error:
            found[name] = [type(error).__name__, error.status_code]
    return found


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    access = {"api_base": base, "api_key": key}
    print(json.dumps(ask(access, served) | {"forms": forms(access, served), "errors": errors(access, served)}))
