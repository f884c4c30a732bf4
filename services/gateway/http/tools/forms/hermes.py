"""Hermes, Qwen3 and their kin: JSON between tags."""

from services.gateway.http.tools.form import Form, Schemas
from services.gateway.http.tools.json_call import JsonCall

CLOSING = "</tool_call>"


def _begin(schemas: Schemas, loose: bool) -> JsonCall:
    return JsonCall(schemas, loose, CLOSING)


FORM = Form("hermes", "<tool_call>", CLOSING, (("{", _begin),), True, lambda template: "<tool_call>" in template)
