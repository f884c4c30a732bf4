"""The chart's values: their schema refuses what is wrong, their page tells what they are."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.cluster.groups import DRAFTER, TARGET
from deploy.helm import readme, schema, values
from tests.deploy import refused
from tests.deploy.test_drift import CHART
from tests.support.cases import each

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Values as Helm lays one set over another."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def test_the_default_values_and_profiles_fit_the_schema() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)
    profiles = list((CHART / "profiles").glob("*.yaml"))
    assert profiles
    for profile in profiles:
        jsonschema.Draft7Validator(SCHEMA).validate(merged(VALUES, yaml.safe_load(profile.read_text())))


def test_values_that_are_passed_on_say_what_their_settings_say() -> None:
    assert values.VALUES.read_text() == values.text(), "run python -m deploy.helm.values"


def test_the_chart_s_page_is_made_from_its_values() -> None:
    assert (CHART / "README.md").read_text() == readme.page(), "run python -m deploy.helm.readme"


def test_the_schema_knows_every_setting_of_target_and_drafter() -> None:
    assert (CHART / "values.schema.json").read_text() == schema.text(), "run python -m deploy.helm.schema"
    for group in (TARGET, DRAFTER):
        assert set(group.free) <= SCHEMA["definitions"][group.prefix]["properties"].keys()


NO_VALUES = {".global", ".enabled", ".workers.rayVersion"}
"""What Helm itself gives a chart or reads of it, and what has moved: that is taken, or refused in words."""


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where values and schema differ in names, or the schema lets unknown names pass."""
    if schema.get("type") != "object" or "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        yield f"{path} takes unknown names"
    if path and not values:  # the fields of a map that is passed on whole
        return
    for name in values.keys() ^ schema["properties"].keys():
        if f"{path}.{name}" not in NO_VALUES:
            yield f"{path}.{name} is not in both"
    for name in values.keys() & schema["properties"].keys():
        if isinstance(values[name], dict):
            yield from leaves(values[name], schema["properties"][name], f"{path}.{name}")


def test_schema_and_values_name_the_same() -> None:
    assert list(leaves(VALUES, SCHEMA)) == []


def rules_of_names(schema: Any, path: str = "") -> Iterator[str]:
    """Where a rule of names is one whose breach Helm tells without its place."""
    if isinstance(schema, dict):
        if "propertyNames" in schema:
            yield path
        for name, part in schema.items():
            yield from rules_of_names(part, f"{path}/{name}")


def test_a_name_that_is_refused_is_told_at_its_place() -> None:
    """Of propertyNames Helm says `at ''`; of patternProperties and no others it names the group."""
    assert list(rules_of_names(SCHEMA)) == []


def every_key(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """The path of every value that is no group of others."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from every_key(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_every_key_has_a_value_that_is_refused() -> None:
    named = {path for path, _ in refused.VALUES}
    assert [key for key in every_key(VALUES) if key not in named] == []
    assert len(refused.VALUES) + len(refused.TOGETHER) >= 60


def with_value(path: str, value: Any) -> dict[str, Any]:
    """The default values with one of them changed."""
    values: dict[str, Any] = json.loads(json.dumps(VALUES))
    *parents, last = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[last] = value
    return values


GOOD = {"target": {"widths": [1, 4], "prefix_cache": False, "memory_fraction": 0.5}, "drafter": {"ngram_max": 6}}


def test_the_schema_accepts_settings_of_target_and_drafter() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(merged(VALUES, {"workers": {**GOOD, "mps": True}}))


@each(("path", "value"), refused.VALUES)
def test_the_schema_refuses(path: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(with_value(path, value))


Case = tuple[str, Any]
UNKNOWN = "nobodyKnowsThis"
NO_QUANTITIES = ("12Gx", "-1", "1 Gi", "", "1Gi1", "Gi", "1,5", "0x10", "NaN")


def below(path: str, schema: dict[str, Any]) -> Iterator[Case]:
    """Every place of a schema, entries of lists too, with what may stand there; references followed."""
    for part in schema.get("allOf", ()):
        yield from below(path, part)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in ("target", "drafter", "workersOfOne") and not name.startswith("kubernetes-"):
            yield from below(path, SCHEMA["definitions"][name])
        return
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from below(f"{path}/{name}", inner)
    if "items" in schema:
        yield from below(f"{path}/0", schema["items"])


PLACES = [place for place in below("", SCHEMA) if not place[0].startswith("/global")]


def wrong(path: str, schema: dict[str, Any]) -> Iterator[Any]:
    """Values of each kind that belong nowhere."""
    kind = schema.get("type")
    if kind == "array" and schema["items"].get("type") != "string":
        yield from (["hello"] if path != "/extraObjects" else [3], [[]], [None], "hello", {"0": {}})
    if kind == "object" and path.endswith("/0"):
        yield from ({}, {UNKNOWN: 1})
    if kind == "object" and schema.get("additionalProperties") is False:
        yield from ({UNKNOWN + "!": "a"}, {"": "a"}, {"with space": "a"}, {"a": [1]}, ["a"], "a", 1)
    if path.endswith(("/requests", "/limits")):
        yield from ({"cpu": wrong} for wrong in (*NO_QUANTITIES, -1, True, None))
        yield from ({name: "1"} for name in ("memroy", "CPU", "gpu", "nvidia.com/", "hugepages-2"))
    if path.lower().endswith("size") or path.endswith("sizeLimit"):
        yield from (*NO_QUANTITIES, 5, None)
    if path.endswith(("interval", "Timeout")):
        yield from ("often", "15", "15 s", "-1s", "s", 15)
    if path.lower().endswith("port"):
        yield from (-1, 65536, "80 80", 1.5, True, [])
    if path.endswith(("Name", "Claim", "/name")) and path not in ("/model/name", "/models/0/name"):
        yield from ("with space", "-a", 5, ["a"], *(() if "Env" in path else ("a" * 254,)))
    if path.endswith(("abels", "nodeSelector")):
        yield from ({"a": wrong} for wrong in ("with space", "-a", "a" * 64, 1, True, None))


def in_place(path: str, value: Any) -> Any:
    """The smallest values with one of them at a place; an entry of a list has what it needs."""
    for name in reversed(path.strip("/").split("/")):
        value = [value] if name == "0" else {name: value}
    return value


def test_every_kind_of_value_that_belongs_nowhere_is_refused_where_it_stands() -> None:
    judge = jsonschema.Draft7Validator(SCHEMA)
    cases = [(path, value) for path, schema in PLACES for value in wrong(path, schema)]
    passed = []
    for path, value in cases:
        at = ["/".join(map(str, error.absolute_path)) for error in judge.iter_errors(in_place(path, value))]
        if not any(f"/{one}".startswith(path) for one in at):
            passed.append((path, value))
    assert passed == []
    assert len(cases) >= 1000
