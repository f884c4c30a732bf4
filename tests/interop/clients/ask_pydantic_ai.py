"""Asks with pydantic-ai by its defaults: tools, and outputs as a tool, natively and by the prompt; prints JSON."""

import asyncio
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.messages import ModelMessage, ThinkingPart, ToolCallPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Report(BaseModel):
    """The weather of a town."""

    town: str


def parts(messages: list[ModelMessage], kind: Any) -> list[Any]:
    """Parts of one kind in a run."""
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


async def ask(model: Any) -> dict[str, Any]:
    """Runs of one kind of model."""
    agent = Agent(model)

    @agent.tool_plain(name="Weather")  # type: ignore[untyped-decorator]
    def weather(town: str) -> str:
        """The weather of a town."""
        return f"21 in {town}"

    whole = await agent.run("hello")
    async with agent.run_stream("hello") as stream:
        streamed = await stream.get_output()
    (call,) = parts(whole.all_messages(), ToolCallPart)
    found = {
        "chat": (await Agent(model).run("hello")).output,
        "call": [call.tool_name, call.args_as_dict()],
        "thinks": len(parts(whole.all_messages(), ThinkingPart)),
        "result": whole.output,
        "streamed_result": streamed,
        "next": (await agent.run("hello", message_history=whole.all_messages())).output,
    }
    for name, output in (
        ("default", Report), ("tool", ToolOutput(Report)), ("native", NativeOutput(Report)),
        ("prompted", PromptedOutput(Report)),
    ):  # fmt: skip
        found[name] = (await Agent(model, output_type=output).run("Report.")).output.town
    typed = Agent(model, output_type=NativeOutput(Report), tools=[agent_tool])
    report = await typed.run("Report with the tool.")
    found["native_with_tools"] = report.output.town
    found["looked"] = [(part.tool_name, part.args_as_dict()) for part in parts(report.all_messages(), ToolCallPart)]
    return found


def agent_tool(town: str) -> str:
    """The weather of a town."""
    return f"21 in {town}"


async def main(base: str, key: str, model: str) -> None:
    """Both of its kinds of models, and errors."""
    found: dict[str, Any] = {}
    provider = OpenAIProvider(base_url=base, api_key=key)
    for name, kind in (("chats", OpenAIChatModel), ("responses", OpenAIResponsesModel)):
        found[name] = await ask(kind(model, provider=provider))
    found["errors"] = {}
    for name, wrong in (("key", (model, "wrong")), ("model", ("other", key))):
        stranger = OpenAIProvider(base_url=base, api_key=wrong[1])
        try:
            await Agent(OpenAIChatModel(wrong[0], provider=stranger)).run("hello")
        except ModelHTTPError as error:
            found["errors"][name] = error.status_code
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
