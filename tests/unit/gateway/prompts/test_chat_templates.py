"""Chats rendered as transformers does, by templates that use what published ones use; and what ends a template."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest

from services.common.request.errors import PacelineError, Reason
from services.gateway.prompts import chat_renderer
from services.gateway.prompts.chat_renderer import ROOT, ChatRenderer
from tests.support.fakes_tokenizer import build_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

THINKING = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "system" and tools %}{%- continue %}{%- endif %}
    {%- if message.role == "assistant" %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
        {{- content if loop.index0 <= ns.last_query_index else message.content }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
            {{- tool_call.arguments if tool_call.arguments is string else tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
        {%- endgeneration %}
    {%- elif message.role == "tool" %}
        {{- '<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
DATED = """\
{{ bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now("%Y") %}{%- endif %}
{%- if tools is none %}{%- set tools = [] %}{%- endif %}
{{- "Today: " + date_string + "\\n" }}
{%- for t in tools %}
    {{- t | tojson(indent=4) }}
    {{- t.function.parameters | tojson(sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}
{%- endfor %}
{%- macro turn(role, text) %}[{{ role | upper }}]{{ text | trim }}{{ eos_token }}{% endmacro %}
{%- set seen = dict(tool=0) %}
{%- for message in messages %}
    {%- if message['role'] == 'tool' and not message.tool_call_id %}
        {{- raise_exception("a tool's message needs an id") }}
    {%- elif message.role == 'tool' %}
        {{- turn('tool', message.name ~ '#' ~ message.tool_call_id ~ ': ' ~ message.content) }}
    {%- elif message.tool_calls is defined %}
        {%- for call in message.tool_calls %}{{- turn('call', call.id ~ call.function | string) }}{% endfor %}
    {%- else %}
        {{- turn(message.role, message.content) }}
    {%- endif %}
{%- endfor %}
{{- "budget " ~ (budget | default(0)) ~ ", heat " ~ (heat | default(0.5) | round(2)) }}
{%- if documents %}never{% endif %}
{%- if unknown is defined %}never{% endif %}
"""
NESTED = {"type": "object", "properties": {"unit": {"enum": ["°C", "<F>"]}, "at": {"type": "array", "items": {}}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Grüße & <more>", "parameters": NESTED}}]
CALLS = [{"type": "function", "id": "c1", "function": {"name": "weather", "arguments": {"at": ["Köln", 1, None, 0.5]}}}]
PLAIN = [{"role": "system", "content": "Be short. "}, {"role": "user", "content": "{{ 7 * 7 }} <b>日本</b>"}]
SPOKEN = [*PLAIN, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n49"}, {"role": "user", "content": "and?"}]
CALLED = [
    *PLAIN,
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "content": '{"sun": true}', "tool_call_id": "c1", "name": "weather"},
]
SPECIAL = {"bos_token": "<|im_start|>", "eos_token": "<|end|>", "pad_token": "<|end|>"}


@pytest.fixture(scope="module")
def theirs() -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=build_tokenizer(), **SPECIAL)


@pytest.fixture
def renderer() -> Iterator[Callable[..., ChatRenderer]]:
    made: list[ChatRenderer] = []

    def make(source: str, limit_s: float = 20.0) -> ChatRenderer:
        made.append(ChatRenderer(source, SPECIAL, limit_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


def said(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("source", [THINKING, DATED], ids=["thinking", "dated"])
def test_a_chat_is_rendered_as_transformers_renders_it(
    theirs: "PreTrainedTokenizerFast", renderer: Callable[..., ChatRenderer], source: str
) -> None:
    ours, texts = renderer(source), set()
    for messages in (PLAIN, SPOKEN, CALLED):
        for tools in ([], TOOLS):
            for arguments in ({}, {"enable_thinking": False}, {"enable_thinking": True, "budget": 2**40, "heat": 0.25}):
                text = ours.render(messages, tools, arguments)
                assert text == theirs.apply_chat_template(
                    messages,
                    tools=tools or None,
                    chat_template=source,
                    add_generation_prompt=True,
                    tokenize=False,
                    **arguments,
                )
                texts.add(text)
    assert len(texts) >= 12


def test_thinking_is_switched_off_by_an_argument(renderer: Callable[..., ChatRenderer]) -> None:
    ours = renderer(THINKING)
    assert not ours.render(PLAIN).endswith("</think>\n\n")
    assert ours.render(PLAIN, (), {"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")


def test_what_a_template_raises_names_the_chat(renderer: Callable[..., ChatRenderer]) -> None:
    with pytest.raises(PacelineError, match="a tool's message needs an id") as refused:
        renderer(DATED).render([*PLAIN, {"role": "tool", "content": "x"}])
    assert refused.value.field == "prompt.chat"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ messages.nothing.more }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ 'x' * 3000000 }}",
        "{% set _ = messages.append(1) %}",
        "{% set ns = namespace(_a=1) %}",
        "{{ '\\ud800' }}",
    ],
)
def test_whatever_goes_wrong_in_a_template_is_a_typed_refusal(
    renderer: Callable[..., ChatRenderer], source: str
) -> None:
    with pytest.raises(PacelineError) as refused:
        renderer(source).render(said("x"))
    assert refused.value.field == "prompt.chat"


@pytest.mark.parametrize(
    "work", ["{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{{ 3 ** (3 ** 18) }}"]
)
def test_a_template_that_loops_is_ended_and_the_next_chat_is_rendered(
    renderer: Callable[..., ChatRenderer], work: str
) -> None:
    ours = renderer("{{ messages[0].content }}{% if messages[0].content == 'loop' %}" + work + "{% endif %}", 0.3)
    assert ours.render(said("hi")) == "hi"
    begun = time.monotonic()
    with pytest.raises(PacelineError, match=r"longer than 0\.3 s") as refused:
        ours.render(said("loop"))
    assert time.monotonic() - begun < 10
    assert refused.value.field == "prompt.chat"
    assert ours.render(said("again")) == "again"


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return not path.exists() or path.read_text().rpartition(")")[2].split()[0] == "Z"


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_process_that_was_killed_is_started_again(renderer: Callable[..., ChatRenderer]) -> None:
    ours, before = renderer("{{ messages[0].content }}"), set(children(os.getpid()))
    assert ours.render(said("one")) == "one"
    (child,) = set(children(os.getpid())) - before
    os.kill(child, signal.SIGKILL)
    wait(lambda: gone(child))
    assert ours.render(said("two")) == "two"
    ours.close()
    assert set(children(os.getpid())) <= before


def test_a_process_that_starts_slowly_is_waited_for_where_it_gets_no_processor(
    renderer: Callable[..., ChatRenderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_renderer, "START_S", 0.02)  # no Python starts in that
    monkeypatch.setattr(chat_renderer, "BUSY", 1e6)
    assert renderer("{{ messages[0].content }}").render(said("one")) == "one"


@pytest.mark.parametrize(("longest_s", "busy"), [(0.02, 1e6), (60.0, -1.0)], ids=["at all", "computing"])
def test_a_process_that_starts_too_slowly_is_said_to_be_none(
    renderer: Callable[..., ChatRenderer], monkeypatch: pytest.MonkeyPatch, longest_s: float, busy: float
) -> None:
    monkeypatch.setattr(chat_renderer, "START_S", 0.02)
    monkeypatch.setattr(chat_renderer, "LONGEST_START_S", longest_s)
    monkeypatch.setattr(chat_renderer, "BUSY", busy)
    before = set(children(os.getpid()))
    with pytest.raises(PacelineError, match="cannot be started") as caught:
        renderer("{{ messages[0].content }}").render(said("one"))
    assert caught.value.reason is Reason.OVERLOADED
    assert set(children(os.getpid())) <= before


def test_a_process_that_is_stopped_is_no_fault_of_the_chat(renderer: Callable[..., ChatRenderer]) -> None:
    ours, before = renderer("{{ messages[0].content }}", 2.0), set(children(os.getpid()))
    assert ours.render(said("one")) == "one"
    (child,) = set(children(os.getpid())) - before
    os.kill(child, signal.SIGSTOP)
    assert ours.render(said("two")) == "two"
    assert gone(child)


def test_a_process_that_is_killed_under_a_chat_is_no_fault_of_the_chat(renderer: Callable[..., ChatRenderer]) -> None:
    ours, before = renderer("{{ messages[0].content }}", 60.0), set(children(os.getpid()))
    assert ours.render(said("one")) == "one"
    (child,) = set(children(os.getpid())) - before
    os.kill(child, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(ours.render, said("two"))
        wait(asked.running)
        os.kill(child, signal.SIGKILL)
        assert asked.result() == "two"


def test_a_looping_template_ends_with_its_gateway() -> None:
    code = (
        "from services.gateway.prompts.chat_renderer import ChatRenderer\n"
        "loop = '{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}'\n"
        "ChatRenderer(loop, {}, 60.0).render([{'role': 'user', 'content': ''}])"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as parent:
        wait(lambda: bool(children(parent.pid)))
        (child,) = children(parent.pid)
        parent.kill()
    wait(lambda: gone(child))


def test_what_is_no_template_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(jinja2.TemplateSyntaxError):
        ChatRenderer("{% if %}", {})
