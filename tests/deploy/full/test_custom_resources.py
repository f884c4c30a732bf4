"""Custom resources against the schemas that their projects publish; a RayCluster against the fields that we render."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from tests.deploy.full.charts import VARIANTS, variant
from tests.deploy.full.node import PROGRAMS, node

PUBLISHED = (
    *("BackendTLSPolicy", "Certificate", "GRPCRoute", "HTTPRoute", "PodMonitor", "PrometheusRule", "ScaledObject"),
    "ServiceMonitor",
)
RAYCLUSTER = jsonschema.Draft7Validator(json.loads((PROGRAMS / "raycluster.schema.json").read_text()))


def refusals(resources: list[dict[str, Any]]) -> list[str]:
    """One line for each resource that a published schema refuses."""
    return node("validate.mjs", json.dumps(resources)).stdout.splitlines()


def resources(*kinds: str) -> list[dict[str, Any]]:
    return [document for name in VARIANTS for document in variant(name) if document["kind"] in kinds]


def test_published_schemas_accept_what_the_chart_renders(report_counts: Callable[[str, int], None]) -> None:
    found = resources(*PUBLISHED)
    assert {document["kind"] for document in found} == set(PUBLISHED)
    assert refusals(found) == []
    report_counts("custom_resources", len(found))


WRONG: dict[str, tuple[str, Any]] = {
    "PodMonitor": ("podMetricsEndpoints", [{"port": "metrics", "interval": "often"}]),
    "ServiceMonitor": ("endpoints", [{"port": "metrics", "interval": "often"}]),
    "PrometheusRule": ("groups", [{"rules": []}]),
    "ScaledObject": ("triggers", [{"metadata": {}}]),
    "Certificate": ("issuerRef", None),
    "GRPCRoute": ("parentRefs", [{"namespace": "infra"}]),
    "HTTPRoute": ("rules", [{"timeouts": {"request": "often"}}]),
    "BackendTLSPolicy": ("validation", {"hostname": "*"}),
}
"""A field and a value by kind, which its schema does not take."""


def test_published_schemas_refuse_what_is_wrong() -> None:
    found = {kind: deepcopy(resources(kind)[0]) for kind in PUBLISHED}
    for kind, (field, value) in WRONG.items():
        found[kind]["spec"][field] = value
    assert sorted(line.split()[0] for line in refusals([*found.values()])) == sorted(PUBLISHED)


def test_a_raycluster_has_the_fields_that_its_operator_reads() -> None:
    found = resources("RayCluster")
    assert len(found) >= 3
    for resource in found:
        RAYCLUSTER.validate(resource)
        for group in resource["spec"]["workerGroupSpecs"]:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


@pytest.mark.parametrize("path", ["spec.headGroupSpec.template", "spec.rayVersion", "spec.workerGroupSpecs"])
def test_a_raycluster_without_a_field_is_refused(path: str) -> None:
    resource = deepcopy(resources("RayCluster")[0])
    *parents, last = path.split(".")
    place = resource
    for parent in parents:
        place = place[parent]
    place[f"{last}s"] = place.pop(last)
    assert not RAYCLUSTER.is_valid(resource)


def test_the_head_names_its_port_unlike_the_operator() -> None:
    """KubeRay adds a port "metrics" to the head, and a monitor that asks for that name would find it first."""
    for resource in resources("RayCluster"):
        containers = resource["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
        assert "metrics" not in {port["name"] for container in containers for port in container["ports"]}
    heads = [d for d in variant("raycluster-service-monitor") if d["metadata"]["name"] == "llm-head"]
    (monitor,) = [d for d in heads if d["kind"] == "ServiceMonitor"]
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == ["c-metrics"]
