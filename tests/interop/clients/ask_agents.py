"""Asks with OpenAI's Agents SDK by its defaults, the Responses API: tools, a handoff, an output type; prints JSON."""

import asyncio
import json
import os
import sys
from typing import Any

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # traces would go to OpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_default_openai_client
from openai import APIStatusError, AsyncOpenAI
from pydantic import BaseModel


@function_tool(name_override="Weather")  # type: ignore[untyped-decorator]
def weather(town: str) -> str:
    """The weather of a town."""
    return f"21 in {town}"


class Report(BaseModel):
    """The weather of a town."""

    town: str


def calls(result: Any) -> list[Any]:
    """Names and arguments of the calls of a run."""
    raw = [item.raw_item for item in result.new_items if item.type in ("tool_call_item", "handoff_call_item")]
    return [[one.name, json.loads(one.arguments)] for one in raw]


async def ask(model: Any) -> dict[str, Any]:
    """Runs of one kind of model."""
    agent = Agent(name="Forecaster", instructions="You forecast.", model=model, tools=[weather])
    desk = Agent(name="Desk", instructions="You hand over.", model=model, handoffs=[agent])
    typed = Agent(name="Reporter", instructions="You report.", model=model, output_type=Report)
    whole = await Runner.run(agent, "hello")
    streamed = Runner.run_streamed(agent, "hello")
    kinds = [event.type async for event in streamed.stream_events()]
    over = await Runner.run(desk, "hello")
    report = (await Runner.run(typed, "Report.")).final_output
    return {
        "chat": (await Runner.run(Agent(name="Talker", model=model), "hello")).final_output,
        "call": calls(whole),
        "result": whole.final_output,
        "streamed_call": calls(streamed),
        "streamed_result": streamed.final_output,
        "events": "raw_response_event" in kinds,
        "handoff": [over.last_agent.name, calls(over)],
        "typed": [type(report).__name__, report.town],
    }


async def main(base: str, key: str, model: str) -> None:
    """Both of its kinds of models, and an error."""
    client = AsyncOpenAI(base_url=base, api_key=key)
    set_default_openai_client(client)
    found = {"responses": await ask(model), "chats": await ask(OpenAIChatCompletionsModel(model, client))}
    try:
        await Runner.run(Agent(name="Talker", model="other"), "hello")
    except APIStatusError as error:
        found["errors"] = {"model": [type(error).__name__, error.status_code]}
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
