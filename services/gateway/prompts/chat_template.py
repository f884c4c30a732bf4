"""A checkpoint's chat template, compiled as transformers does. It may run for ever, so chat_child.py runs it."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes, parser
from jinja2.ext import Extension
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

GIVEN = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
"""Names that a render gives every template."""

SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""Names that templates read from the tokenizer's configuration."""


class ChatTemplate:
    """One compiled template in a sandbox that can neither reach attributes nor change values."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compiles the source; `special_tokens` are given by name, such as eos_token."""
        self._template = _environment().from_string(source)
        self._special_tokens = special_tokens

    def render(self, messages: list[Any], tools: list[Any], arguments: Mapping[str, Any]) -> str:
        """The prompt, up to where the assistant's answer begins; whatever the template raises comes out."""
        turn = {"add_generation_prompt": not arguments.get("continue_final_message", False)}
        given = {"messages": messages, "tools": tools or None, "documents": None}
        return self._template.render({**self._special_tokens, **turn, **arguments, **given})


def check_syntax(source: str) -> None:
    """Parses a template and computes nothing.

    Raises:
        jinja2.TemplateSyntaxError: it is none.
    """
    _environment().parse(source)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    # What is intercepted is not computed while a template is compiled, when no time limit holds yet.
    environment.intercepted_binops = frozenset(environment.default_binop_table)
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


class _Generation(Extension):
    """{% generation %} marks what the assistant wrote, for training; here it prints its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: parser.Parser) -> nodes.Node:
        """The body as a block call, which is a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        return str(caller())


class _Dict:
    """The type dict without its attributes."""

    def __call__(self, *pairs: Any, **items: Any) -> dict[Any, Any]:
        return dict(*pairs, **items)

    def fromkeys(self, *arguments: Any) -> dict[Any, Any]:
        """As dict's."""
        return dict.fromkeys(*arguments)


class _Namespace(jinja2.utils.Namespace):
    """Values that a template may set, none with an underscore before its name."""

    def __init__(*pairs: Any, **items: Any) -> None:
        """As jinja's, in which `self` may be the name of a value."""
        self, *rest = pairs
        values = dict(*rest, **items)
        for name in values:
            _check_attribute(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace holds no {name!r}")


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:  # noqa: A002
    return datetime.now().strftime(format)  # noqa: DTZ005


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
