"""python -m deploy.client_page [--check]: writes docs/client.md from the package paceline, or says it is old."""

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paceline
from services.common.serving.settings_help import sentences

PAGE = Path(__file__).resolve().parents[1] / "docs" / "client.md"
HEAD = """# The Python client

Made from the docstrings of `paceline` by `python -m deploy.client_page`; edit those, not this page.

```python
from paceline import Client

with Client("127.0.0.1:50051") as client:
    print(client.generate("def main():", max_tokens=64).text)

    messages = [{"role": "user", "content": "hello"}]
    stream = client.stream(messages, max_tokens=64, temperature=0.7, stop="\\n\\n")
    for piece in stream:
        print(piece.text, end="", flush=True)
    print(stream.answer.finish, stream.answer.tau)

    answer = client.generate("def main():", max_tokens=8, logprobs=2)
    print([position.chosen.logprob for position in answer.logprobs])
```

The same for asyncio:

```python
import asyncio

from paceline import AsyncClient


async def main() -> None:
    async with AsyncClient("127.0.0.1:50051") as client:
        async for piece in client.stream("def main():", max_tokens=64):
            print(piece.text, end="", flush=True)


asyncio.run(main())
```

The address is that of gRPC, which `make up` and `paceline serve` print. A prompt is text, a list of messages or a list
of token ids; messages and tools are dicts in OpenAI's form, or `Message` and `Tool`.
"""
ORDER = (
    "Client", "Stream", "AsyncClient", "AsyncStream", "Options", "Answer", "Piece", "PositionLogprobs", "TokenLogprob",
    "Message", "Tool", "ToolCall", "Model", "Status", "Pair", "Activity", "Tls", "PacelineError", "NoGatewayError",
    "InvalidValueError", "RefusedError",
)  # fmt: skip
"""Public names in the order in which a reader needs them."""


def page() -> str:
    """docs/client.md, as Markdown."""
    return "\n".join([HEAD, *(_section(getattr(paceline, name)) for name in ORDER)])


def _section(cls: type) -> str:
    parts = [f"## {cls.__name__}", _prose(inspect.getdoc(cls) or "")]
    if dataclasses.is_dataclass(cls):
        parts.append(_fields(cls))
    members = [_member(name, one) for name, one in _members(cls)]
    return "\n\n".join([*parts, *members]) + "\n"


def _fields(cls: Any) -> str:
    said = sentences(cls)
    rows = [f"| `{one.name}` | {_type(one)} | {_default(one)} | {said[one.name]} |" for one in dataclasses.fields(cls)]
    return "\n".join(["| field | type | default | meaning |", "|---|---|---|---|", *rows])


def _type(field: "dataclasses.Field[Any]") -> str:
    """Its type without the modules' names; a bar would end the cell."""
    return f"`{re.sub(r'[a-z_.]+[.](?=[A-Z])', '', inspect.formatannotation(field.type))}`".replace("|", "\\|")


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    return "" if field.default_factory is dataclasses.MISSING else f"`{field.default_factory()!r}`"


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for name, one in vars(cls).items():
        made = name == "__init__" and cls.__name__.endswith("Client")
        if made or (not name.startswith("_") and (inspect.isfunction(one) or isinstance(one, property))):
            yield cls.__name__ if made else name, one


def _member(name: str, one: Any) -> str:
    if isinstance(one, property):
        return f"**`{name}`**: {_prose(inspect.getdoc(one) or '')}"
    prefix = "await " if inspect.iscoroutinefunction(one) else ""
    return f"**`{prefix}{name}({_arguments(one)})`**: {_prose(inspect.getdoc(one) or '')}"


def _arguments(function: Callable[..., object]) -> str:
    """Names with their defaults."""
    shown = []
    for one in list(inspect.signature(function).parameters.values())[1:]:
        if one.kind is one.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        stars = "**" if one.kind is one.VAR_KEYWORD else ""
        shown.append(f"{stars}{one.name}" + ("" if one.default is one.empty else f"={one.default!r}"))
    return ", ".join(shown)


def _prose(text: str) -> str:
    """A docstring as Markdown: what it raises becomes a sentence of its own."""
    about, _, raised = text.partition("\nRaises:\n")
    parts = [" ".join(part.split()) for part in about.strip().split("\n\n")]
    raises = [" ".join(line.split()) for line in re.split(r"\n(?=    \S)", raised.rstrip()) if line.strip()]
    if raises:
        parts.append(
            "\n".join(f"- raises `{names}`: {what}" for names, _, what in (one.partition(": ") for one in raises))
        )
    return "\n\n".join(parts)


def main() -> int:
    """1 when asked to check and the page is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.client_page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is old")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.stdout.write("docs/client.md is stale: python -m deploy.client_page\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
