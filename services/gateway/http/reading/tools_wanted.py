"""What an answer must be like whose client requires calls: calls as the model's form has them, of the tools named."""

import json
from collections.abc import Sequence
from typing import Any

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import invalid_field, unsupported
from services.common.request.grammar import inline
from services.gateway.http.schema.bodies import NamedChoice, ToolBody
from services.gateway.parsing.form import Form as CallForm
from services.gateway.parsing.form import Written

FIELD = "tool_choice"
NO_PARAMETERS = {"type": "object"}


def required_calls(
    choice: NamedChoice | str | None, tools: Sequence[ToolBody], forms: Sequence[CallForm], several: bool
) -> Constraint | None:
    """The constraint of a required or named choice, None of any other; `several` calls may follow one another.

    Raises:
        PacelineError: there is no such tool, or the form of the model's calls cannot be required.
    """
    if choice in (None, "auto", "none"):
        return None
    name = choice.function.name if isinstance(choice, NamedChoice) else None
    meant = [(index, tool) for index, tool in enumerate(tools) if name in (None, tool.function.name)]
    if not meant:
        raise invalid_field(FIELD, "needs tools" if name is None else f"{name[:64]!r} is none of the tools")
    written = next((form.written for form in forms if form.written is not None), None)
    if written is None:
        raise unsupported(FIELD, "the form in which this model writes calls cannot be required")
    at = "tools[{}].function.parameters"
    parts = [(at.format(index), tool.function.parameters or NO_PARAMETERS) for index, tool in meant]
    names = [tool.function.name for _, tool in meant]
    text = _grammar(names, [schema for _, schema in parts], written, several and name is None)
    checked = tuple(Constraint(Form.JSON, json.dumps(schema), field) for field, schema in parts)
    return Constraint(Form.CALLS, text, FIELD, checked)


def _grammar(names: Sequence[str], schemas: Sequence[dict[str, Any]], written: Written, several: bool) -> str:
    more = f" ({_literal(written.between)} call)*" if several and written.between else ""
    lines = [f"start: call{more}", "call: " + " | ".join(f"call_{index}" for index in range(len(names)))]
    for index, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        head = f"{written.before}{json.dumps(name, ensure_ascii=False)}{written.middle}"
        lines.append(f"call_{index}: {_literal(head)} arguments_{index} {_literal(written.after)}")
        lines.append(f"arguments_{index}: {inline(schema)}")
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
