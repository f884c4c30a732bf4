"""python -m tests.deploy.full.passed_on: writes Kubernetes' own types into the schema of the chart's values.

They are of what the chart passes on unchanged: fields of pods, containers, volumes, metrics. Only types are taken: a
field that a later Kubernetes brings stays allowed below the first level.
"""

import json
from collections.abc import Iterator
from typing import Any

from deploy.helm.schema import SCHEMA
from tests.deploy.full.kubernetes import SCHEMAS

NEWEST = "1.36"
PREFIX = "kubernetes-"
CORE, SCALING = "io.k8s.api.core.v1.", "io.k8s.api.autoscaling.v2."
OF_DEFINITIONS = {"container": "Container", "volume": "Volume", "affinity": "Affinity", "podSpec": "PodSpec"}
OF_VALUES = {"podSecurityContext": "PodSecurityContext", "containerSecurityContext": "SecurityContext"}


def known(version: str) -> dict[str, Any]:
    """Definitions of a version, by their full names."""
    found = json.loads((SCHEMAS / f"v{version}.0-local-strict/_definitions.json").read_text())["$defs"]
    assert isinstance(found, dict)
    return found


class Types:
    """Definitions of Kubernetes without words, with those that they refer to."""

    def __init__(self, version: str) -> None:
        self._known = known(version)
        self.taken: dict[str, Any] = {}

    def fields(self, name: str) -> dict[str, Any]:
        """The types of the fields of a definition."""
        return {field: self.type(of) for field, of in self._known[name]["properties"].items()}

    def type(self, of: dict[str, Any]) -> dict[str, Any]:
        """A type; one that is described elsewhere is taken, too."""
        if "$ref" in of:
            return self._referred(of["$ref"].rpartition("/")[2])
        if "oneOf" in of:
            return {"type": sorted({one for each in of["oneOf"] for one in each["type"]})}
        made: dict[str, Any] = {"type": of["type"]} if "type" in of else {}
        if "items" in of:
            made["items"] = self.type(of["items"])
        if isinstance(of.get("additionalProperties"), dict):
            made["additionalProperties"] = self.type(of["additionalProperties"])
        return made

    def _referred(self, name: str) -> dict[str, Any]:
        if "properties" not in self._known[name]:
            return self.type(self._known[name])
        short = PREFIX + name.rpartition(".")[2]
        if short not in self.taken:
            self.taken[short] = {}
            required = {"required": self._known[name]["required"]} if "required" in self._known[name] else {}
            self.taken[short] = {"type": ["object", "null"], "properties": self.fields(name), **required}
        return {"$ref": f"#/definitions/{short}"}


def places(schema: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """(an object of the schema, whose fields of Kubernetes it passes on)."""
    for name, of in OF_DEFINITIONS.items():
        yield schema["definitions"][name], CORE + of
    for name, of in OF_VALUES.items():
        yield schema["properties"][name], CORE + of
    scaling = schema["properties"]["gateway"]["properties"]["autoscaling"]["properties"]
    yield scaling["metrics"]["items"], SCALING + "MetricSpec"


def is_passed_on(field: dict[str, Any]) -> bool:
    """No hand has said more of it than that it is there."""
    return field in ({}, {"type": "object"}) or PREFIX in json.dumps(field) or "null" in field.get("type", ())


def typed(schema: dict[str, Any], version: str = NEWEST) -> dict[str, Any]:
    """The schema with the types of a version of Kubernetes."""
    types, made = Types(version), json.loads(json.dumps(schema))
    assert isinstance(made, dict)
    for place, name in places(made):
        fields = types.fields(name)
        for field, of in place["properties"].items():
            if is_passed_on(of) and field in fields:
                place["properties"][field] = fields[field]
    kept = {name: of for name, of in made["definitions"].items() if not name.startswith(PREFIX)}
    made["definitions"] = dict(sorted(types.taken.items())) | kept
    return made


def main() -> None:
    """Writes the schema."""
    SCHEMA.write_text(json.dumps(typed(json.loads(SCHEMA.read_text())), indent=2) + "\n")


if __name__ == "__main__":
    main()
