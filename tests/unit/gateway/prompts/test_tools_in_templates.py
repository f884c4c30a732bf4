"""Tools of a client's body stand in the prompt byte for byte as transformers prints them, in four families' styles."""

import json
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.intake.query import ChatPrompt
from services.gateway.prompts.chat_renderer import ChatRenderer
from tests.support.fakes_tokenizer import build_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TURNS = """
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endfor %}"""
STYLES = {
    "Qwen3": '{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}' + TURNS,
    "Hermes": (
        "{%- for tool in tools %}{%- set tool = tool.function if tool.function else tool %}"
        '{{- \'{"type": "function", "function": \' }}{{- tool | tojson }}{{- "}" }}'
        "{%- if not loop.last %}{{- '\\n' }}{%- endif %}{%- endfor %}"
    )
    + TURNS,
    "Llama 3.1": "{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}" + TURNS,
    "Qwen3-Coder": """
{%- macro extra(fields, known) %}{%- for key in fields | list | reject('in', known) %}
{%- set flat = fields[key] is string or fields[key] is not iterable %}
{{- '\\n<' ~ key ~ '>' ~ (fields[key] | string if flat else fields[key] | tojson) ~ '</' ~ key ~ '>' }}
{%- endfor %}{%- endmacro %}
{%- for tool in tools %}{%- set tool = tool.function if tool.function is defined else tool %}
{{- '\\n<function>\\n<name>' ~ tool.name ~ '</name>' }}
{%- if tool.description is defined %}
{{- '\\n<description>' ~ (tool.description | trim) ~ '</description>' }}{%- endif %}
{{- '\\n<parameters>' }}
{%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is defined
    and tool.parameters.properties is mapping %}
{%- for name, fields in tool.parameters.properties | items %}{{- '\\n<parameter>\\n<name>' ~ name ~ '</name>' }}
{%- if fields.type is defined %}{{- '\\n<type>' ~ (fields.type | string) ~ '</type>' }}{%- endif %}
{{- extra(fields, ['name', 'type', 'description']) }}{{- '\\n</parameter>' }}{%- endfor %}{%- endif %}
{{- extra(tool.parameters or {}, ['type', 'properties']) }}{{- '\\n</parameters>' }}
{{- extra(tool, ['type', 'name', 'description', 'parameters']) }}{{- '\\n</function>' }}{%- endfor %}"""
    + TURNS,
}
TEXTS = (
    "",
    "Grüße",
    "日本 😀",
    "a \"quote\" and 'another'",
    "<b>&amp;</b>",
    "line\nline\ttab",
    "\\d+ \\u00e9",
    "\u2028\x7f",
)


def value_of(draw: random.Random, depth: int) -> Any:
    """Any JSON, its keys in any order."""
    kind = draw.randint(0, 7 if depth else 5)
    if kind == 6:
        return [value_of(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    if kind == 7:
        return {draw.choice(TEXTS) + str(number): value_of(draw, depth - 1) for number in range(draw.randint(0, 3))}
    return draw.choice((draw.choice(TEXTS), draw.randint(-(2**40), 2**40), 1e300, -0.5, True, None, 1.0))


def schema_of(draw: random.Random, depth: int) -> dict[str, Any]:
    """A schema of an object, with more schemas in it."""
    names = draw.sample(["town", "Größe", "at", "日付", "$ref", "a-b", "type"], k=draw.randint(0, 4))
    fields: dict[str, Any] = {"type": draw.choice(["object", ["object", "null"]])}
    fields["properties"] = {name: schema_of(draw, depth - 1) if depth else value_schema(draw) for name in names}
    more = {
        "required": names,
        "additionalProperties": False,
        "description": draw.choice(TEXTS),
        "x-any": value_of(draw, 2),
    }
    fields |= {name: more[name] for name in draw.sample([*more], k=draw.randint(0, len(more)))}
    return shuffled(draw, fields)


def value_schema(draw: random.Random) -> dict[str, Any]:
    """A schema of one value."""
    kinds: tuple[dict[str, Any], ...] = (
        {"enum": [value_of(draw, 1), None]},
        {"const": 1.0},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {},
    )
    return shuffled(draw, {"type": "string", "default": value_of(draw, 1)} | draw.choice(kinds))


def shuffled(draw: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    names = draw.sample([*fields], k=len(fields))
    return {name: fields[name] for name in names}


def tool_of(draw: random.Random, number: int) -> dict[str, Any]:
    function: dict[str, Any] = {"name": f"f{number}"}
    more = {"description": draw.choice(TEXTS), "parameters": schema_of(draw, 2), "strict": draw.random() < 0.5}
    function |= {name: more[name] for name in draw.sample([*more], k=draw.randint(0, len(more)))}
    return shuffled(draw, {"type": "function", "function": shuffled(draw, function)})


@pytest.fixture(scope="module")
def theirs() -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=build_tokenizer())


@pytest.fixture(params=STYLES)
def ours(request: pytest.FixtureRequest) -> Iterator[ChatRenderer]:
    renderer = ChatRenderer(STYLES[request.param], {}, 20.0)
    yield renderer
    renderer.close()


def test_tools_are_printed_as_transformers_prints_them(
    ours: ChatRenderer, theirs: "PreTrainedTokenizerFast", full: bool
) -> None:
    draw = random.Random(11)
    for _ in range(2000 if full else 60):
        tools = [tool_of(draw, number) for number in range(draw.randint(1, 3))]
        arguments = {draw.choice(TEXTS) + str(number): value_of(draw, 3) for number in range(draw.randint(0, 3))}
        function = {"name": "f0", "arguments": json.dumps(arguments, ensure_ascii=draw.random() < 0.5)}
        call = {"id": "c", "type": "function", "function": function}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": draw.choice(TEXTS)},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": draw.choice(TEXTS), "tool_call_id": "c"},
        ]
        body = {"model": "m", "messages": messages, "tools": tools}
        prompt = chat_query(parsed(ChatBody, json.dumps(body, ensure_ascii=False).encode()), Headers()).prompt
        assert isinstance(prompt, ChatPrompt)
        # transformers wants the arguments of calls as objects.
        messages[1]["tool_calls"] = [call | {"function": function | {"arguments": arguments}}]
        expected = theirs.apply_chat_template(
            messages, tools=tools, chat_template=ours.source, add_generation_prompt=True, tokenize=False
        )
        assert ours.render(prompt.messages, prompt.tools, prompt.arguments) == expected
