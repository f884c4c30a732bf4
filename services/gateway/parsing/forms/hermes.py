"""Hermes, Qwen3 and their kin: JSON between tags."""

from services.gateway.parsing.form import Form, Schemas, Written
from services.gateway.parsing.json_call import JsonCall

CLOSING = "</tool_call>"


def _begin(schemas: Schemas, loose: bool) -> JsonCall:
    return JsonCall(schemas, loose, CLOSING)


WRITTEN = Written('<tool_call>\n{"name": ', ', "arguments": ', "}\n</tool_call>", "\n")
FORM = Form(
    "hermes", "<tool_call>", CLOSING, (("{", _begin),), True, lambda template: "<tool_call>" in template, WRITTEN
)
