"""Calls as JSON: {"name": ..., "arguments": {...}}, which Hermes and Qwen3 write."""

import json
from typing import Any

from services.gateway.http.output import Call


def hermes_call(text: str) -> Call | None:
    """The call that stands between two tags; None when it is none."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or not found["name"]:
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if isinstance(arguments, str):
        return Call(found["name"], arguments)
    if not isinstance(arguments, dict):
        return None
    return Call(found["name"], json.dumps(arguments, ensure_ascii=False))
