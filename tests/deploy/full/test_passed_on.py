"""What the chart passes on to Kubernetes has Kubernetes' own types, so that Helm refuses what a cluster would."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helm_python import HelmError

from deploy.helm.schema import SCHEMA
from tests.deploy.full.charts import BASE, render
from tests.deploy.full.kubernetes import refusals
from tests.deploy.full.passed_on import PREFIX, Types, places, typed
from tests.deploy.test_values import merged

WRONG: dict[str, Any] = {"string": 7, "integer": "7", "number": "7", "boolean": "true", "object": "a", "array": "a"}
"""Of each type something that another one is."""
BEGUN: dict[str, Any] = {
    "container": {"name": "proxy", "image": "i"},
    "volume": {"name": "cache"},
    "affinity": {},
    "podSpec": {},
}
WHERE = {"container": "extraContainers", "volume": "extraVolumes", "affinity": "affinity", "podSpec": "podSpec"}
DRAWN = 60


def schema() -> dict[str, Any]:
    found = json.loads(SCHEMA.read_text())
    assert isinstance(found, dict)
    return found


def bare(of: Any) -> Any:
    """A type without null, which versions of Kubernetes take here or there."""
    if isinstance(of, dict):
        types = of.get("type")
        given = {"type": sorted({*types} - {"null"})} if isinstance(types, list) else {"type": [types]} if types else {}
        return {name: bare(value) for name, value in of.items() if name != "type"} | given
    return of


def test_the_schema_has_the_types_of_the_newest_kubernetes() -> None:
    assert typed(schema()) == schema(), "python -m tests.deploy.full.passed_on"


@pytest.mark.parametrize("version", ["1.30", "1.33"])
def test_an_older_kubernetes_has_the_same_types(version: str) -> None:
    types, written, compared = Types(version), schema(), 0
    for place, name in places(written):
        for field, of in types.fields(name).items():
            if PREFIX in json.dumps(place["properties"].get(field, "")):
                assert bare(place["properties"][field]) == bare(of), field
    for name, older in types.taken.items():
        known = written["definitions"].get(name, {"properties": {}})["properties"]
        for field in older["properties"].keys() & known.keys():
            compared += 1
            assert bare(older["properties"][field]) == bare(known[field]), f"{name}.{field}"
    assert compared > 200


def fields(of: dict[str, Any], known: dict[str, Any], depth: int = 0) -> Iterator[tuple[list[Any], str, Any]]:
    """(names down to a field, its type, a wrong value), through lists too."""
    if "$ref" in of:
        of = known[of["$ref"].rpartition("/")[2]]
    types = (
        [each for each in of.get("type", []) if each != "null"] if isinstance(of.get("type"), list) else [of["type"]]
    )
    if len(types) == 1:
        yield [], types[0], WRONG[types[0]]
    if depth == 3:
        return
    if "items" in of:
        yield from (([0, *path], name, wrong) for path, name, wrong in fields(of["items"], known, depth + 1))
    for field, inner in of.get("properties", {}).items():
        yield from (([field, *path], name, wrong) for path, name, wrong in fields(inner, known, depth + 1))


def put(path: list[Any], value: Any) -> Any:
    for step in reversed(path):
        value = [value] if step == 0 else {step: value}
    return value


def drawn(seed: int) -> list[tuple[str, dict[str, Any], str]]:
    """(where, values, the type that is wanted there)."""
    chance, written, found = random.Random(seed), schema(), list[tuple[str, dict[str, Any], str]]()
    for name, begun in BEGUN.items():
        for field, of in written["definitions"][name]["properties"].items():
            if field in begun or ("type" not in of and "$ref" not in of):
                continue
            for path, wanted, wrong in fields(of, written["definitions"]):
                given = begun | {field: put(path, wrong)}
                whole = [given] if WHERE[name].startswith("extra") else given
                values = {chance.choice(("gateway", "workers")): {WHERE[name]: whole}}
                found.append((".".join(map(str, (WHERE[name], field, *path))), values, wanted))
    return chance.sample(found, DRAWN)


def test_a_value_of_another_type_is_refused_with_its_place(
    seed: int, report_counts: Callable[[str, int], None]
) -> None:
    print(f"seed {seed}")
    for place, values, wanted in drawn(seed):
        with pytest.raises(HelmError, match=f"got .*, want .*{wanted}|missing propert") as refused:
            render(merged(BASE, values))
        assert f"/{place.split('.')[0]}" in str(refused.value), place
    report_counts("types_refused", DRAWN)


@pytest.mark.parametrize("context", ["podSecurityContext", "containerSecurityContext"])
def test_an_id_in_quotes_is_refused_and_one_without_is_taken(context: str) -> None:
    """As `--set-string` and templates of templates write it, which no cluster takes."""
    with pytest.raises(HelmError, match=rf"at '/{context}/runAsUser': got string, want null or integer"):
        render(merged(BASE, {context: {"runAsUser": "1000"}}))
    found = render(merged(BASE, {context: {"runAsUser": 1000}}))
    assert refusals("1.33", found) == []
