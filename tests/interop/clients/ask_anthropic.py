"""Asks with Anthropic's client: messages, streams, tools, required tools, counts, thoughts and errors; prints JSON."""

import json
import sys
from typing import Any

import anthropic
from pydantic import BaseModel

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
TOOLS: list[Any] = [{"name": "Weather", "description": "By town.", "input_schema": SCHEMA}]


class Report(BaseModel):
    """The weather of a town."""

    town: str


def blocks(message: Any, kind: str) -> list[Any]:
    """The blocks of one kind."""
    return [block for block in message.content if block.type == kind]


def answered(message: Any) -> list[Any]:
    """The chat with the model's own message and what its tool says."""
    (call,) = blocks(message, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "21"}
    return [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]


def ask(client: anthropic.Anthropic, model: str) -> dict[str, Any]:
    """Everything but errors."""
    given: dict[str, Any] = {"model": model, "max_tokens": 200}
    whole = client.messages.create(messages=HELLO, **given)
    with client.messages.stream(messages=HELLO, **given) as stream:
        streamed = "".join(stream.text_stream)
    first = client.messages.create(messages=HELLO, tools=TOOLS, **given)
    with client.messages.stream(messages=HELLO, tools=TOOLS, **given) as stream:
        final = stream.get_final_message()
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    thoughtful = client.messages.create(messages=HELLO, tools=TOOLS, thinking=thinking, **given)
    forced = client.messages.create(messages=HELLO, tools=TOOLS, tool_choice={"type": "any"}, **given)
    asked: Any = [{"role": "user", "content": "Report."}]
    report = client.messages.parse(messages=asked, output_format=Report, **given).parsed_output
    return {
        "parse": report.town,
        "chat": whole.content[0].text,
        "stream": streamed,
        "counted": whole.usage.output_tokens,
        "prompt": client.messages.count_tokens(messages=HELLO, model=model).input_tokens == whole.usage.input_tokens,
        "call": [blocks(first, "tool_use")[0].name, blocks(first, "tool_use")[0].input],
        "streamed_call": [blocks(final, "tool_use")[0].name, blocks(final, "tool_use")[0].input],
        "thought": blocks(thoughtful, "thinking")[0].thinking,
        "result": client.messages.create(messages=answered(first), tools=TOOLS, **given).content[0].text,
        "streamed_result": client.messages.create(messages=answered(final), tools=TOOLS, **given).content[0].text,
        "run": run(client, given),
        "forced": [forced.stop_reason, blocks(forced, "tool_use")[0].input],
    }


def run(client: anthropic.Anthropic, given: dict[str, Any]) -> str:
    """What its tool runner ends with by its defaults: it asks for a thread first, and goes on without one."""

    @anthropic.beta_tool(name="Weather")  # type: ignore[untyped-decorator]
    def weather(town: str) -> str:
        """By town."""
        return "21"

    last = client.beta.messages.tool_runner(messages=HELLO, tools=[weather], **given).until_done()
    return str(last.content[0].text)


def errors(address: str, key: str, model: str) -> dict[str, Any]:
    """What the client raises."""
    found = {}
    for name, access, served in (("key", "wrong", model), ("model", key, "other")):
        try:
            client = anthropic.Anthropic(base_url=address, api_key=access)
            client.messages.create(model=served, max_tokens=9, messages=HELLO)
        except anthropic.APIStatusError as error:
            found[name] = [type(error).__name__, error.status_code]
    return found


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    root = base.removesuffix("/v1")
    asked = ask(anthropic.Anthropic(base_url=root, api_key=key), served)
    print(json.dumps(asked | {"errors": errors(root, key, served)}))
