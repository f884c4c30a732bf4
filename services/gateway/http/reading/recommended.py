"""The sampling that a model's makers recommend in generation_config.json: what a request over HTTP takes by default."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from services.common.request.sampling import LOWEST_TEMPERATURE, RANGES
from services.common.serving.files import read_regular
from services.gateway.http.reading.convert import Headers
from services.gateway.http.schema.bodies import Common
from services.gateway.intake.query import Query
from services.gateway.prompts.tokenizer import TokenizerError

FILE = "generation_config.json"
NAMES = tuple(name for name in RANGES if name != "seed")

Recommended = Mapping[str, float]
"""Values by the names of request fields; `top_k` is an int."""

Body = TypeVar("Body", bound=Common)


def read_recommended(folder: Path) -> dict[str, float]:
    """What the file states and a request may state; `do_sample` says nothing about it, as in vLLM.

    Raises:
        TokenizerError: the file is there and no JSON object.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        said = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: cannot be read: {error}") from error
    if not isinstance(said, dict):
        raise TokenizerError(f"{path}: is not a JSON object")
    found = {name: value for name in NAMES if (value := _value(name, said.get(name))) is not None}
    if found:
        text = ", ".join(f"{name} {value}" for name, value in found.items())
        logging.getLogger(__name__).info("requests over HTTP sample by %s where they state nothing: %s", FILE, text)
    return found


def _value(name: str, said: object) -> float | None:
    """A value as requests state it; None where it is none that they may state."""
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    lowest = {"temperature": LOWEST_TEMPERATURE, "top_k": 0}.get(name)
    value = 0 if lowest is not None and -1 <= said < lowest else said
    if not RANGES[name].holds(value):
        return None
    return int(value) if name == "top_k" else float(value)


def by_default(recommended: Recommended, convert: Callable[[Body, Headers], Query]) -> Callable[[Body, Headers], Query]:
    """A conversion in which fields that a body leaves out have the recommended values."""
    if not recommended:
        return convert

    def converted(body: Body, headers: Headers) -> Query:
        absent = {name: value for name, value in recommended.items() if getattr(body, name) is None}
        return convert(body.model_copy(update=absent), headers)

    return converted
