"""What an answer must be like: calls as the model's form has them where a client requires any, or a stated form."""

import json
from collections.abc import Sequence
from typing import Any

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import invalid_field, unsupported
from services.common.request.grammar import inline
from services.gateway.http.schema.bodies import NamedChoice, ToolBody
from services.gateway.parsing.form import Form as CallForm
from services.gateway.parsing.form import Written

FIELD, FORMAT = "tool_choice", "response_format"
NO_PARAMETERS = {"type": "object"}


def form_of_answer(
    choice: NamedChoice | str | None,
    tools: Sequence[ToolBody],
    forms: Sequence[CallForm],
    several: bool,
    stated: Constraint | None,
) -> Constraint | None:
    """The constraint of an answer: calls that are required, a form that is stated, or either where both may come.

    Args:
        choice: which tools may be called, or must be.
        tools: all of them.
        forms: those in which the model may write calls.
        several: calls may follow one another.
        stated: the form of an answer that is no call.

    Raises:
        PacelineError: there is no such tool, the form of the model's calls cannot be required, or two forms contradict.
    """
    written = next((form.written for form in forms if form.written is not None), None)
    formatted = stated is not None and stated.field.startswith(FORMAT)
    if choice in (None, "auto", "none"):
        if not formatted or not tools or written is None:
            return stated
        return _calls(tools, written, several, stated)
    if stated is not None and not formatted:
        raise invalid_field(stated.field, "stands beside tool_choice, which requires calls")
    return _required(choice, tools, written, several)


def _required(
    choice: NamedChoice | str | None, tools: Sequence[ToolBody], written: Written | None, several: bool
) -> Constraint:
    name = choice.function.name if isinstance(choice, NamedChoice) else None
    meant = [tool for tool in tools if name in (None, tool.function.name)]
    if not meant:
        raise invalid_field(FIELD, "needs tools" if name is None else f"{name[:64]!r} is none of the tools")
    if written is None:
        raise unsupported(FIELD, "the form in which this model writes calls cannot be required")
    return _calls(meant, written, several and name is None)


def _calls(meant: Sequence[ToolBody], written: Written, several: bool, answer: Constraint | None = None) -> Constraint:
    """Calls of some tools, or in their place an answer in JSON.

    Beside an answer no call is required: its arguments follow their schema where the tool is strict, and else are any
    object, so that a schema that cannot be masked is no reason to refuse.
    """
    held = [tool.function.parameters if answer is None or tool.function.strict else None for tool in meant]
    schemas = [schema or NO_PARAMETERS for schema in held]
    lines = _grammar([tool.function.name for tool in meant], schemas, written, several)
    checked = tuple(
        Constraint(Form.JSON, json.dumps(schema), f"{tool.place}.function.parameters")
        for tool, schema in zip(meant, schemas, strict=True)
    )
    if answer is None:
        return Constraint(Form.CALLS, "\n".join(["start: calls", *lines]) + "\n", FIELD, checked)
    either = ["start: calls | answer", *lines, f"answer: {inline(json.loads(answer.text))}"]
    return Constraint(Form.CALLS, "\n".join(either) + "\n", answer.field, (answer, *checked))


def _grammar(names: Sequence[str], schemas: Sequence[dict[str, Any]], written: Written, several: bool) -> list[str]:
    more = f" ({_literal(written.between)} call)*" if several and written.between else ""
    lines = [f"calls: call{more}", "call: " + " | ".join(f"call_{index}" for index in range(len(names)))]
    for index, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        head = f"{written.before}{json.dumps(name, ensure_ascii=False)}{written.middle}"
        lines.append(f"call_{index}: {_literal(head)} arguments_{index} {_literal(written.after)}")
        lines.append(f"arguments_{index}: {inline(schema)}")
    return lines


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
