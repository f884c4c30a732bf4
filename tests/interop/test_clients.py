"""Clients that people use, each in an environment of its own, against one real stack, given its URL and a key alone."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import REPOSITORY
from tests.interop.talker import CHAT, COMPLETION, KEY, RESULT, SCRIPTS, Talker, talker

ENVIRONMENTS = REPOSITORY / ".venv-clients"
PROGRAMS = Path(__file__).parent / "clients"
WAIT_S = 600.0
"""Longest run of one client: some take a minute of a busy core to be imported."""
SAID = {key: "".join(pieces) for key, pieces in SCRIPTS.items()}
CALL = ["Weather", {"town": "Rome"}]
THOUGHT = "A town?"
FORM = "Rome"
"""What every client makes of an answer in a form."""
AGENT = {"chat": SAID[CHAT], "result": SAID[RESULT]}
TALK = {"chat": SAID[CHAT], "stream": SAID[CHAT]}
TEXTS = TALK | {"completion": SAID[COMPLETION], "completion_stream": SAID[COMPLETION]}
COUNTED = {"counted": len(SCRIPTS[CHAT]) + 1}
CALLED = {"call": CALL, "streamed_call": CALL, "result": SAID[RESULT], "streamed_result": SAID[RESULT]}
AGENTS_SDK = {
    **AGENT, "call": [CALL], "streamed_call": [CALL], "streamed_result": SAID[RESULT], "events": True,
    "handoff": ["Forecaster", [["transfer_to_forecaster", {}]]], "typed": ["Report", FORM],
}  # fmt: skip
PYDANTIC_AI = {
    **AGENT, "call": CALL, "thinks": 1, "streamed_result": "I look.", "next": SAID[RESULT], "default": FORM,
    "tool": FORM, "native": FORM, "prompted": FORM, "native_with_tools": FORM,
    "looked": [["agent_tool", {"town": "Rome"}]],
}  # fmt: skip
INSTRUCTOR_MODES = (
    "FUNCTIONS", "TOOLS", "TOOLS_STRICT", "JSON", "JSON_O1", "MD_JSON", "JSON_SCHEMA", "RESPONSES_TOOLS",
)  # fmt: skip
OPENAI_ERRORS = {
    "key": ["AuthenticationError", 401, None],
    "model": ["NotFoundError", 404, "model"],
    "option": ["BadRequestError", 400, "tool_choice"],
}
EXPECTED: dict[str, dict[str, Any]] = {
    "openai": {
        **TEXTS, **COUNTED, **CALLED, "models": ["paceline-embedded"], "errors": OPENAI_ERRORS,
        "parsed": {
            "parse": FORM, "parsed_call": FORM, "required": FORM, "responses": SAID[CHAT],
            "responses_stream": SAID[CHAT], "responses_call": CALL, "responses_result": SAID[RESULT],
            "responses_parse": FORM,
        },
        "async": {**TALK, "completion": SAID[COMPLETION], "call": CALL, "error": "model"},
    },
    "langchain": {
        **TEXTS, **COUNTED, **CALLED, "async": SAID[CHAT],
        "forms": {
            "json_schema": FORM, "function_calling": FORM, "json_mode": FORM, "default": FORM, "agent": SAID[RESULT],
            "agent_schema": FORM, "agent_tool": FORM, "agent_provider": FORM, "responses": SAID[CHAT],
            "responses_schema": FORM,
        },
        "errors": {
            "key": ["OpenAIAuthenticationError", 401, None],
            "model": ["OpenAIModelNotFoundError", 404, "model"],
        },
    },
    "litellm": {
        **TEXTS, **COUNTED, **CALLED, "thought": THOUGHT,
        "forms": {
            "schema": {"town": FORM}, "required": CALL, "responses": SAID[CHAT], "responses_stream": SAID[CHAT],
            "anthropic_adapter": SAID[CHAT], "anthropic": SAID[CHAT],
        },
        "errors": {"key": ["AuthenticationError", 401], "model": ["NotFoundError", 404]},
    },
    "llm": {
        **TEXTS, "call": "Tool call: Weather({'town': 'Rome'})", "result": SAID[RESULT],
        "errors": {
            "key": [1, "Error: Error code: 401 - a valid API key is needed"],
            "model": [1, "Error: Error code: 404 - The model `other` does not exist. Served: `paceline-embedded`."],
        },
    },
    "instructor": {
        **TALK, "call": CALL, "forms": dict.fromkeys(INSTRUCTOR_MODES, FORM),
        "errors": {
            "key": ["InstructorRetryException", "AuthenticationError", None],
            "model": ["InstructorRetryException", "NotFoundError", "model"],
        },
    },
    "agents": {"responses": AGENTS_SDK, "chats": AGENTS_SDK, "errors": {"model": ["NotFoundError", 404]}},
    "pydantic_ai": {"chats": PYDANTIC_AI, "responses": PYDANTIC_AI, "errors": {"key": 401, "model": 404}},
    "dspy": {
        "chat": SAID[CHAT], "fields": FORM, "json": FORM, "default": FORM,
        "errors": {"model": ["LMUnsupportedModelError", None]},
    },
    "anthropic": {
        **TALK, **COUNTED, **CALLED, "prompt": True, "thought": THOUGHT, "parse": FORM, "run": SAID[RESULT],
        "forced": ["tool_use", {"town": "Rome"}],
        "errors": {"key": ["AuthenticationError", 401], "model": ["NotFoundError", 404]},
    },
    "lm_eval": {"choice": 1.0, "chat": 1.0},
    "guidellm": {"failed": 0, "whole": 3, "said": [SAID[CHAT]]},
    "node_openai": {**TEXTS, **COUNTED, **CALLED, "run": SAID[RESULT], "errors": OPENAI_ERRORS},
    "node_ai_sdk": {
        **TEXTS, **COUNTED, **CALLED, "thought": THOUGHT, "forms": [FORM, FORM, FORM],
        "errors": {"key": ["AI_APICallError", 401], "model": ["AI_APICallError", 404]},
    },
}  # fmt: skip
PAGE = {
    "pip install openai": ("openai", SAID[COMPLETION]),
    "pip install langchain-openai": ("langchain", SAID[CHAT]),
    "pip install 'litellm[mcp]'": ("litellm", SAID[CHAT]),
    "pip install instructor": ("instructor", "Rome"),
    "pip install llm": ("llm", SAID[CHAT]),
    "npm install openai": ("node_openai", SAID[CHAT]),
    "npm install ai @ai-sdk/openai-compatible": ("node_ai_sdk", SAID[CHAT]),
}
"""First lines of blocks in docs/use.md: whose environment they run in, and what they print."""


@pytest.fixture(scope="module")
def served() -> Iterator[Talker]:
    with talker() as started:
        yield started


def run(command: list[str], folder: Path, program: str, **environment: str) -> str:
    """What a program on standard input prints."""
    own = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", **environment}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | own, input=program, capture_output=True, text=True, check=False,
        timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("client", EXPECTED)
def test_chats_streams_completions_tools_and_errors(served: Talker, client: str) -> None:
    folder = ENVIRONMENTS / client
    given = [served.base_url, KEY, served.model]
    if client.startswith("node"):
        program = (PROGRAMS / client / "ask.mjs").read_text()
        output = run(["node", "--input-type=module", "-", *given], folder, program)
    else:
        program = (PROGRAMS / f"ask_{client}.py").read_text()
        output = run([str(folder / "bin/python"), "-", *given], folder, program)
    assert differing(json.loads(output.splitlines()[-1]), EXPECTED[client]) == {}


def differing(found: object, expected: object, place: str = "") -> dict[str, tuple[object, object]]:
    """What was found and expected where these differ, by names."""
    if isinstance(found, dict) and isinstance(expected, dict):
        names = dict.fromkeys([*expected, *found])
        inner = (differing(found.get(name), expected.get(name), f"{place}.{name}") for name in names)
        return {at: both for one in inner for at, both in one.items()}
    return {} if found == expected else {place: (found, expected)}


def test_what_differs_is_told_by_its_name() -> None:
    assert differing({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": []}) == {".a.c": (2, 3), ".d": (None, [])}
    assert differing({"a": [1]}, {"a": [1]}) == {}


def blocks() -> dict[str, tuple[str, str]]:
    """Language and text of the page's blocks that begin with how a client is installed."""
    page = (REPOSITORY / "docs/use.md").read_text()
    found = re.findall(r"```(\w*)\n(?:#|//) ((?:pip|npm) install [^\n]*)\n(.*?)```", page, re.DOTALL)
    return {install: (language, text) for language, install, text in found}


def test_the_page_shows_every_client() -> None:
    assert {install: PAGE[install][0] for install in blocks()} == {install: name for install, (name, _) in PAGE.items()}
    assert {name for name, _ in PAGE.values()} <= set(EXPECTED)


@pytest.mark.parametrize("install", PAGE)
def test_the_page_s_lines_are_all_that_a_client_needs(served: Talker, install: str, tmp_path: Path) -> None:
    client, printed = PAGE[install]
    language, text = blocks()[install]
    folder = ENVIRONMENTS / client
    program = text.replace("http://127.0.0.1:8000/v1", served.base_url).replace('"none"', f'"{KEY}"')
    program = program.replace("SmolLM2-135M-requantised", served.model)
    assert program.count(served.base_url) == program.count(KEY) == 1
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    command = {"python": ["python", "-"], "js": ["node", "--input-type=module", "-"], "bash": ["bash", "-eu"]}[language]
    assert run(command, folder, program, PATH=path, LLM_USER_PATH=str(tmp_path)).strip() == printed.strip()
