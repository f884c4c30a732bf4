"""The chart as platform teams take it in: under a chart of their own, with values taken away, applied by any tool."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart, HelmError

from tests.deploy.full.charts import BASE, NAMESPACE, VARIANTS, documents, render, templates, variant
from tests.deploy.full.kubernetes import refusals
from tests.deploy.test_drift import CHART
from tests.deploy.test_values import merged

OWN = yaml.safe_load((CHART / "values.yaml").read_text())
MOST_BYTES = 262_144
"""Kubernetes' bound on an object's annotations; kubectl apply, and Argo CD by it, keep the whole object in one."""


def umbrella(folder: Path, values: dict[str, Any], **dependency: str) -> list[dict[str, Any]]:
    """What a chart renders that has this one as a dependency."""
    shutil.copytree(CHART, folder / "charts/paceline")
    needs = {"name": "paceline", "version": ">=0.0.0-0", "repository": "", **dependency}
    about = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [needs]}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    with Chart.load(folder) as chart:
        return documents(chart.render(values=values, name="llm", namespace=NAMESPACE))


@pytest.mark.parametrize(
    ("values", "dependency"),
    [
        ({"paceline": BASE}, {}),
        ({"global": {"imageRegistry": "registry.example", "storageClass": "fast"}, "paceline": BASE}, {}),
        ({"serving": BASE}, {"alias": "serving"}),
        ({"paceline": {**BASE, "enabled": True}}, {"condition": "paceline.enabled"}),
        ({"serving": {**BASE, "enabled": True}}, {"alias": "serving", "condition": "serving.enabled"}),
    ],
    ids=["dependency", "global values", "alias", "condition", "alias and condition"],
)
def test_under_another_chart_it_is_what_it_is_alone(
    values: dict[str, Any], dependency: dict[str, str], tmp_path: Path
) -> None:
    found, alone = umbrella(tmp_path / "c", values, **dependency), render(BASE)
    named = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert named == [(each["kind"], each["metadata"]["name"]) for each in alone]


def test_a_condition_that_is_false_leaves_it_out(tmp_path: Path) -> None:
    values = {"paceline": {**BASE, "enabled": False}}
    assert umbrella(tmp_path / "c", values, condition="paceline.enabled") == []
    with pytest.raises(HelmError, match="at '/enabled'"):
        render(merged(BASE, {"enabled": False}))


def paths(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every value of the chart."""
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from paths(value, (*above, name))


def without(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Values with null at a path, as `--set PATH=null` has them."""
    below = without(values.get(path[0]) or {}, path[1:]) if len(path) > 1 else None
    return {**values, path[0]: below}


@pytest.mark.parametrize("section", OWN)
def test_a_value_that_is_taken_away_is_missed_in_words_or_not_at_all(section: str) -> None:
    """No template fails half-way through: it renders, or the schema or a check names the place."""
    for path in [each for each in paths(OWN) if each[0] == section]:
        try:
            found = render(without(BASE, path))
        except HelmError as refused:
            assert "at '" in str(refused), (path, str(refused))
            assert path[-1] in str(refused), (path, str(refused))
        else:
            assert found, path


PARTS = ("requests", "limits")
QUANTITIES: tuple[Any, ...] = (2, 0.5, "500m", "1.5")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("where", ["gateway", "workers"])
def test_requests_or_limits_can_be_taken_away_whole(where: str, part: str) -> None:
    found = render(merged(BASE, {where: {"resources": {part: None}}}))
    (pod,) = [p for p in templates(found) if p["spec"]["containers"][0]["name"] == where.removesuffix("s")]
    own = pod["spec"]["containers"][0]["resources"]
    counted = {"nvidia.com/gpu": 1} if where == "workers" and part == "limits" else None
    assert (own.get(part), own[PARTS[part == "requests"]]["memory"]) == (
        counted,
        OWN[where]["resources"][PARTS[part == "requests"]]["memory"],
    )


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_quantity_is_written_as_kubernetes_takes_it(quantity: Any) -> None:
    found = render(merged(BASE, {"gateway": {"resources": {"requests": {"cpu": quantity}}}}))
    assert refusals("1.33", found) == []
    (pod,) = [p for p in templates(found) if p["spec"]["containers"][0]["name"] == "gateway"]
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == quantity


@pytest.mark.parametrize("name", VARIANTS)
def test_every_object_can_be_applied_by_kubectl(name: str) -> None:
    for document in variant(name):
        assert len(json.dumps(document)) < MOST_BYTES, (document["kind"], document["metadata"]["name"])
