"""What an answer must be like, from the fields that clients of OpenAI's API and of vLLM send."""

import json
from collections.abc import Iterator
from typing import Any

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import invalid_field
from services.common.request.grammar import choice_constraint
from services.gateway.http.schema.bodies import Common, ResponseFormat

ANY_OBJECT = {"type": "object"}


def constraint_of(body: Common) -> Constraint | None:
    """The one constraint of a body; None where it has none.

    Raises:
        PacelineError: there are several, or one is incomplete.
    """
    found = [*_formats(body.response_format), *_structured(body), *_guided(body)]
    if len(found) > 1:
        raise invalid_field(found[1].field, f"stands beside {found[0].field}: an answer has one form")
    return found[0] if found else None


def _formats(wanted: ResponseFormat | None) -> Iterator[Constraint]:
    if wanted is None or wanted.type == "text":
        return
    if wanted.type == "json_object":
        schema, field = wanted.schema_, "response_format.schema"
        yield _json(ANY_OBJECT, "response_format") if schema is None else _json(schema, field)
        return
    if wanted.json_schema is None or wanted.json_schema.schema_ is None:
        raise invalid_field("response_format.json_schema.schema", "is needed with type json_schema")
    yield _json(wanted.json_schema.schema_, "response_format.json_schema.schema")


def _structured(body: Common) -> Iterator[Constraint]:
    wanted, at = body.structured_outputs, "structured_outputs"
    if wanted is None:
        return
    yield from _each(at + ".", wanted.json_, wanted.regex, wanted.choice, wanted.grammar)
    if wanted.json_object:
        yield _json(ANY_OBJECT, f"{at}.json_object")


def _guided(body: Common) -> Iterator[Constraint]:
    yield from _each("guided_", body.guided_json, body.guided_regex, body.guided_choice, body.guided_grammar)


def _each(
    prefix: str, schema: dict[str, Any] | str | None, regex: str | None, choice: list[str] | None, grammar: str | None
) -> Iterator[Constraint]:
    if schema is not None:
        yield _json(schema, f"{prefix}json")
    if regex is not None:
        yield Constraint(Form.REGEX, regex, f"{prefix}regex")
    if choice is not None:
        yield choice_constraint(choice, f"{prefix}choice")
    if grammar is not None:
        yield Constraint(Form.GRAMMAR, grammar, f"{prefix}grammar")


def _json(schema: dict[str, Any] | str, field: str) -> Constraint:
    return Constraint(Form.JSON, schema if isinstance(schema, str) else json.dumps(schema), field)
