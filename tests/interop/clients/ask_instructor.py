"""Asks with instructor in the tool mode that leaves the choice to the model; prints what it got as JSON."""

import json
import sys
from collections.abc import Iterable
from typing import Any

import instructor
from instructor.core import InstructorRetryException
from openai import OpenAI
from pydantic import BaseModel

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


SEVERAL = ("PARALLEL_TOOLS", "RESPONSES_TOOLS_WITH_INBUILT_TOOLS")
"""Modes that give several objects, or need OpenAI's own tools."""


class Weather(BaseModel):
    """The weather of a town."""

    town: str


def ask(given: dict[str, str], model: str) -> dict[str, Any]:
    """Everything but errors."""
    client = instructor.from_openai(OpenAI(**given), mode=instructor.Mode.PARALLEL_TOOLS)
    create = client.chat.completions.create
    several = [*create(model=model, messages=HELLO, response_model=Iterable[Weather])]
    plain = create(model=model, messages=HELLO, response_model=None)
    pieces = create(model=model, messages=HELLO, response_model=None, stream=True)
    return {
        "chat": plain.choices[0].message.content,
        "stream": "".join(piece.choices[0].delta.content or "" for piece in pieces),
        "call": [type(several[0]).__name__, several[0].model_dump()],
    }


def forms(given: dict[str, str], model: str) -> dict[str, str]:
    """What each mode that OpenAI's client has makes of a class; "refused" where instructor itself has no such mode."""
    found = {}
    for mode in instructor.Mode:
        if not hasattr(mode, "name") or mode.name in SEVERAL:
            continue
        try:
            client = instructor.from_openai(OpenAI(**given), mode=mode)
        except Exception:
            continue  # a mode of another provider
        asked: Any = [{"role": "user", "content": "Report."}]
        found[mode.name] = client.chat.completions.create(model=model, messages=asked, response_model=Weather).town
    return found


def errors(given: dict[str, str], model: str) -> dict[str, Any]:
    """What instructor raises."""
    found = {}
    for name, access, served, mode, form in (
        ("key", {**given, "api_key": "wrong"}, model, instructor.Mode.PARALLEL_TOOLS, Iterable[Weather]),
        ("model", given, "other", instructor.Mode.PARALLEL_TOOLS, Iterable[Weather]),
    ):
        client = instructor.from_openai(OpenAI(**access), mode=mode)
        try:
            client.chat.completions.create(model=served, messages=HELLO, response_model=form)
        except InstructorRetryException as error:
            cause: Any = error.__cause__
            found[name] = [type(error).__name__, type(cause).__name__, cause.param]
    return found


if __name__ == "__main__":
    base, key, served = sys.argv[1:]
    asked = {"base_url": base, "api_key": key}
    print(json.dumps(ask(asked, served) | {"forms": forms(asked, served), "errors": errors(asked, served)}))
