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


NO_VALUES = {".global", ".workers.rayVersion"}
"""What Helm itself gives a chart, and what moved: an earlier chart's values are taken or refused in words."""


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where values and schema differ in names, or the schema lets unknown names pass."""
    if schema.get("type") != "object" or "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        yield f"{path} takes unknown names"
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


@pytest.mark.parametrize(("path", "value"), refused.VALUES)
def test_the_schema_refuses(path: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(with_value(path, value))
