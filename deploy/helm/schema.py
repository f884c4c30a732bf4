"""python -m deploy.helm.schema: writes the settings of target and drafter into the schema of the chart's values."""

import dataclasses
import json
import re
import typing
from pathlib import Path
from typing import Any

from deploy.cluster.groups import DRAFTER, TARGET
from services.common.serving.settings import Group

CHART = Path(__file__).parent / "paceline"
SCHEMA = CHART / "values.schema.json"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def definitions() -> dict[str, Any]:
    """What workers.target and workers.drafter may hold: every setting that no other value of the chart decides."""
    taken = _flags()
    return {group.prefix: _definition(group, taken) for group in (TARGET, DRAFTER)}


def _flags() -> set[str]:
    """Settings of the controller that the chart's templates pass."""
    text = (CHART / "templates/_worker.tpl").read_text()
    return {name.replace("-", "_") for name in re.findall(r"^\s*- --([a-z-]+)=", text, re.MULTILINE)}


def _definition(group: Group, taken: set[str]) -> dict[str, Any]:
    hints = typing.get_type_hints(group.of)
    names = [field.name for field in dataclasses.fields(group.of) if field.name not in group.decided]
    free = [name for name in names if group.own.get(name) not in taken]
    properties = {name: _kind(hints[name]) for name in free}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _kind(hint: Any) -> dict[str, Any]:
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _kind(typing.get_args(hint)[0])}
    return {"type": _TYPES[hint]}


def text() -> str:
    """The schema: what a person wrote, and the definitions."""
    written = json.loads(SCHEMA.read_text())
    return json.dumps({**written, "definitions": definitions()}, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
