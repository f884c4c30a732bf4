"""The chart's InferencePool: by its published schema, and so that a picker finds in the pods what it looks for."""

import json
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from tests.deploy.full.charts import BASE, VARIANTS, render, templates, variant
from tests.deploy.full.node import PROGRAMS

POOLS = [name for name, values in VARIANTS.items() if "inferencePool" in values]


def strict(schema: Any) -> Any:
    """The schema, with objects that take no field but those it names: an API server drops others in silence."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(value) for name, value in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


PUBLISHED = strict(json.loads((PROGRAMS / "inferencepool.schema.json").read_text()))
PUBLISHED["properties"]["apiVersion"] = {"const": "inference.networking.k8s.io/v1"}
SCHEMA = jsonschema.Draft202012Validator(PUBLISHED)


def pool_of(name: str) -> dict[str, Any]:
    (found,) = [each for each in variant(name) if each["kind"] == "InferencePool"]
    return found


def worker_of(name: str) -> dict[str, Any]:
    pods = {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in templates(variant(name))}
    return pods["worker"]


@pytest.mark.parametrize("name", POOLS)
def test_the_published_schema_accepts_the_pool(name: str) -> None:
    pool = pool_of(name)
    SCHEMA.validate(pool)
    picker = pool["spec"]["endpointPickerRef"]
    assert "kind" not in picker and picker["port"]["number"] == 9002, (
        "a Service, which needs a port by a rule of its own"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("selector", {"matchExpressions": []}),
        ("targetPorts", [{"port": 8000}]),
        ("targetPorts", []),
        ("endpointPickerRef", {"name": "picker", "failureMode": "Sometimes"}),
        ("targetPortNumber", 8000),
    ],
)
def test_the_published_schema_refuses(field: str, value: Any) -> None:
    pool = deepcopy(pool_of("inference-pool"))
    pool["spec"][field] = value
    assert not SCHEMA.is_valid(pool)


@pytest.mark.parametrize("name", POOLS)
def test_the_pool_selects_the_workers_and_their_gateways_listen_where_it_says(name: str) -> None:
    pool, worker = pool_of(name), worker_of(name)
    selector = pool["spec"]["selector"]["matchLabels"]
    assert selector.items() <= worker["metadata"]["labels"].items()
    others = [
        each
        for each in templates(variant(name))
        if each is not worker and each["metadata"]["labels"] != worker["metadata"]["labels"]
    ]
    assert not [each for each in others if selector.items() <= each["metadata"]["labels"].items()]
    (gateway,) = [each for each in worker["spec"]["containers"] if each["name"] == "gateway"]
    (target,) = pool["spec"]["targetPorts"]
    assert f"--http=0.0.0.0:{target['number']}" in gateway["args"]
    assert {"name": "pool", "containerPort": target["number"]} in gateway["ports"]


@pytest.mark.parametrize("name", POOLS)
def test_a_pod_s_gateway_knows_its_own_pairs_and_takes_none_of_its_controller_s_ports(name: str) -> None:
    controller, gateway = worker_of(name)["spec"]["containers"]
    (prefix,) = [arg.partition("=")[2] for arg in controller["args"] if arg.startswith("--pair-prefix=")]
    assert f"--own-pairs={prefix}" in gateway["args"]
    assert any(arg.startswith("--watch-dns=") for arg in gateway["args"]), "requests can move to other pods"
    ports = [port["containerPort"] for each in (controller, gateway) for port in each["ports"]]
    names = [port["name"] for each in (controller, gateway) for port in each["ports"]]
    assert len(set(ports)) == len(ports)
    assert len(set(names)) == len(names)
    flags = [arg.partition("=")[0] for arg in gateway["args"]]
    assert len(set(flags)) == len(flags)
    assert {mount["name"] for mount in gateway["volumeMounts"]} <= {
        v["name"] for v in worker_of(name)["spec"]["volumes"]
    }


@pytest.mark.parametrize("name", POOLS)
def test_policies_let_clients_reach_the_gateways_of_the_pool_and_never_ray(name: str) -> None:
    selector = worker_of(name)["metadata"]["labels"]
    policies = [each["spec"] for each in variant(name) if each["kind"] == "NetworkPolicy"]
    here = [each for each in policies if each["podSelector"]["matchLabels"].items() <= selector.items()]
    assert len(here) == 2
    rules = [rule for each in here for rule in each["ingress"]]
    assert all("ports" in rule for rule in rules), "no peer reaches all ports"
    open_ports = {port["port"] for rule in rules for port in rule["ports"]}
    listed = {port["containerPort"] for each in worker_of(name)["spec"]["containers"] for port in each["ports"]}
    assert open_ports == listed | {50152}
    (client,) = [rule for rule in rules if {"port": 8000} in rule["ports"]]
    assert client.get("from") == VARIANTS[name]["inferencePool"].get("from")


def test_without_a_pool_nothing_of_it_is_there() -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in render(BASE)}
    assert ("InferencePool", "llm") not in names
    assert ("NetworkPolicy", "llm-pool") not in names
    assert [each["name"] for each in worker_of("defaults")["spec"]["containers"]] == ["worker"]
