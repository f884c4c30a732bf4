"""Asks with LangChain's ChatOpenAI and OpenAI; prints what it got as JSON."""

import asyncio
import json
import sys
from typing import Any

import openai
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel


@tool("Weather")  # type: ignore[untyped-decorator]
def weather(town: str) -> str:
    """The weather of a town."""
    return f"21 in {town}"


def ask(given: dict[str, str]) -> dict[str, Any]:
    """Everything but errors."""
    chat, text = ChatOpenAI(**given), OpenAI(**given)
    hello = HumanMessage("hello")
    able = chat.bind_tools([weather])
    first = able.invoke([hello])
    whole: Any = None
    for piece in able.stream([hello]):
        whole = piece if whole is None else whole + piece
    return {
        "chat": chat.invoke([hello]).text,
        "stream": "".join(piece.text for piece in chat.stream([hello])),
        "counted": chat.invoke([hello]).usage_metadata["output_tokens"],
        "completion": text.invoke("def f():"),
        "completion_stream": "".join(text.stream("def f():")),
        "call": [first.tool_calls[0]["name"], first.tool_calls[0]["args"]],
        "streamed_call": [whole.tool_calls[0]["name"], whole.tool_calls[0]["args"]],
        "result": able.invoke([hello, first, weather.invoke(first.tool_calls[0])]).text,
        "streamed_result": able.invoke([hello, whole, weather.invoke(whole.tool_calls[0])]).text,
        "async": asyncio.run(chat.ainvoke([hello])).text,
    }


class Report(BaseModel):
    """The weather of a town."""

    town: str


def forms(given: dict[str, str]) -> dict[str, Any]:
    """An agent, and structured output by every method."""
    chat, found = ChatOpenAI(**given), {}
    for method in ("json_schema", "function_calling", "json_mode"):
        found[method] = chat.with_structured_output(Report, method=method).invoke("Report.").town
    found["default"] = chat.with_structured_output(Report).invoke("Report.").town
    asked: Any = {"messages": [HumanMessage("hello")]}
    found["agent"] = create_agent(chat, [weather]).invoke(asked)["messages"][-1].text
    report: Any = {"messages": [HumanMessage("Report.")]}
    for name, form in (("schema", Report), ("tool", ToolStrategy(Report)), ("provider", ProviderStrategy(Report))):
        found[f"agent_{name}"] = create_agent(chat, [], response_format=form).invoke(report)["structured_response"].town
    responses = ChatOpenAI(**given, use_responses_api=True)
    found["responses"] = responses.invoke("hello").text
    found["responses_schema"] = responses.with_structured_output(Report).invoke("Report.").town
    return found


def errors(given: dict[str, str]) -> dict[str, Any]:
    """LangChain passes on the exceptions of openai's client."""
    found = {}
    for name, wrong in (("key", {"api_key": "wrong"}), ("model", {"model": "other"})):
        try:
            ChatOpenAI(**(given | wrong)).invoke("hello")
        except openai.APIStatusError as error:
            found[name] = [type(error).__name__, error.status_code, error.param]
    return found


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    access = {"base_url": base, "api_key": key, "model": served}
    print(json.dumps(ask(access) | {"forms": forms(access), "errors": errors(access)}))
