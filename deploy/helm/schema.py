"""python -m deploy.helm.schema [--check]: writes what settings say into the schema of the chart's values.

These are the settings of target and drafter, and what is said of values that are passed on unchanged. The settings that
variables can state are written beside.
"""

import argparse
import dataclasses
import json
import re
import sys
import typing
from typing import Any

from deploy.cluster.groups import DRAFTER, TARGET
from deploy.cluster.settings import ClusterSettings
from deploy.helm.readme import rows
from deploy.helm.values import CHART, FLAG, VALUES, passed_on
from services.common.serving.settings import Group, groups, own
from services.common.serving.settings_help import EMPTY, Setting, settings_of
from services.gateway.settings import GatewaySettings

SCHEMA = CHART / "values.schema.json"
VARIABLES = CHART / "files/variables.json"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def definitions() -> dict[str, Any]:
    """What workers.target and workers.drafter may hold: every setting that no other value of the chart decides."""
    taken = _flags()
    return {group.prefix: _definition(group, taken) for group in (TARGET, DRAFTER)}


def _flags() -> set[str]:
    """Settings of the controller that the chart's templates pass."""
    text = (CHART / "templates/_worker.tpl").read_text()
    return {name.replace("-", "_") for name in re.findall(r"^\s*- (?:\{\{ printf \")?--([a-z-]+)=", text, re.MULTILINE)}


def _definition(group: Group, taken: set[str]) -> dict[str, Any]:
    hints = typing.get_type_hints(group.of)
    names = [field.name for field in dataclasses.fields(group.of) if field.name not in group.decided]
    free = [name for name in names if group.own.get(name) not in taken]
    properties = {one.name: _kind(hints[one.name]) | _said(one) for one in settings_of(group.of, free)}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _kind(hint: Any) -> dict[str, Any]:
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _kind(typing.get_args(hint)[0])}
    if typing.get_origin(hint) is typing.Literal:
        words = typing.get_args(hint)
        return {"enum": [*words, *([True, False] if {"true", "false"} <= {*words} else [])]}
    return {"type": _TYPES[hint]}


def _said(setting: Setting) -> dict[str, str]:
    """What the setting says of itself, and its default."""
    default = f" Default: {setting.default}." if setting.default not in ("", EMPTY) else ""
    return {"description": setting.meaning + default}


def text() -> str:
    """The schema: what a person wrote, the sentences, and the definitions."""
    written = json.loads(SCHEMA.read_text())
    said = passed_on()
    for path in (path for path, _, comment in rows(VALUES.read_text()) if FLAG.search(comment)):
        value = written
        for name in path.split("."):
            value = value["properties"][name]
        value["description"] = FLAG.sub("", said[path])
    further = {"workersOfOne": _workers_of_one(written["properties"]["workers"])}
    made = definitions() | further
    kept = {name: one for name, one in written["definitions"].items() if name not in made}
    return json.dumps({**written, "definitions": kept | made}, indent=2) + "\n"


def variables() -> str:
    """The settings that variables of gateways and workers can state, by which the chart knows a misspelt one."""
    found = {}
    for pods, cls in (("gateway", GatewaySettings), ("workers", ClusterSettings)):
        inner = [f"{prefix}__{name}" for prefix, (_, group) in groups(cls).items() for name in group.free]
        found[pods] = sorted(name.upper() for name in (*own(cls), *inner))
    return json.dumps(found, indent=2) + "\n"


def _workers_of_one(workers: dict[str, Any]) -> dict[str, Any]:
    """What an entry of models may state of its workers: any of their values, but how all of them run."""
    kept = {
        name: value for name, value in workers["properties"].items() if name not in ("mode", "raycluster", "rayVersion")
    }
    return {"type": "object", "additionalProperties": False, "properties": kept}


def main() -> int:
    """1 when asked to check and the schema is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.helm.schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the schema is old")
    if not parser.parse_args().check:
        SCHEMA.write_text(text())
        VARIABLES.write_text(variables())
    elif SCHEMA.read_text() != text() or VARIABLES.read_text() != variables():
        sys.stdout.write("the chart's schema is stale: python -m deploy.helm.schema\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
