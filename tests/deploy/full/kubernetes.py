"""The strict schemas of Kubernetes, of several versions: kubernetes-validate's own, each read once."""

import functools
import importlib.resources
import json
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
from referencing import Registry, Resource

from tests.deploy.full.charts import templates
from tests.deploy.test_values import merged

SCHEMAS = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
CUSTOM = {
    *("BackendTLSPolicy", "Certificate", "GRPCRoute", "HTTPRoute", "InferencePool", "PodMonitor", "PrometheusRule"),
    *("RayCluster", "ScaledObject", "ServiceMonitor"),
}
"""Kinds that Kubernetes itself does not bring; test_custom_resources.py checks them."""


def refusals(version: str, documents: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each document that a version such as 1.33 refuses; unknown fields and kinds are refused too."""
    unlike = {json.dumps(each, sort_keys=True): each for each in documents}
    return [sentence for each in unlike.values() for sentence in _refusals(version, each)]


def with_pods(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents, and their pods, because those of custom resources have no other schema."""
    named = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}}
    return [*documents, *(merged(template, named) for template in templates(documents))]


def _refusals(version: str, document: dict[str, Any]) -> Iterator[str]:
    if document["kind"] in CUSTOM:
        return
    group, _, version_of_group = document["apiVersion"].rpartition("/")
    name = "-".join(filter(None, (document["kind"].lower(), group.partition(".")[0], version_of_group)))
    validator = _validator(version, name)
    if validator is None:
        yield f"{document['kind']} of {document['apiVersion']} is not in Kubernetes {version}"
        return
    for error in validator.iter_errors(document):
        yield f"{document['kind']} {document['metadata']['name']}: {error.json_path}: {error.message}"


@functools.cache
def _validator(version: str, name: str) -> jsonschema.Draft202012Validator | None:
    file = SCHEMAS / f"v{version}.0-local-strict/{name}.json"
    if not file.is_file():
        return None
    return jsonschema.Draft202012Validator(json.loads(file.read_text()), registry=_definitions(version))


@functools.cache
def _definitions(version: str) -> Any:
    definitions = json.loads((SCHEMAS / f"v{version}.0-local-strict/_definitions.json").read_text())
    return Resource.from_contents(definitions) @ Registry()
