"""Releases on a real API server: installed, upgraded, rolled back, taken away, and every set of values looked at."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helm_python import Chart, Config, HelmError

from tests.cluster.server import Cluster
from tests.deploy.full.charts import BASE, VARIANTS, render, templates
from tests.deploy.full.test_chart_sets import PLAIN, SETS, drawn
from tests.deploy.test_drift import CHART
from tests.deploy.test_values import merged

OLD = Path(__file__).parent / "paceline-0.1.0.tgz"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
RELEASE = "llm"
_NUMBERS = itertools.count()
CHANGED = {
    "image": {"tag": "8"},
    "workers": {"slots": 32, "podLabels": {"team": "b"}},
    "commonLabels": {"team": "b"},
    "gateway": {"replicas": 3},
}


@dataclass(frozen=True)
class Place:
    """A namespace that takes restricted pods alone, and Helm there."""

    name: str
    helm: Config


@pytest.fixture
def place(cluster: Cluster) -> Iterator[Place]:
    """A namespace of this test."""
    name = cluster.namespace(f"test-{next(_NUMBERS)}", **RESTRICTED)
    with Config(kubeconfig_content=cluster.kubeconfig, namespace=name) as helm:
        yield Place(name, helm)


def held(cluster: Cluster, namespace: str) -> str:
    """What the Secret of the release holds."""
    return str(cluster.ask(f"/api/v1/namespaces/{namespace}/secrets/{RELEASE}-session")["data"]["secret"])


@pytest.mark.parametrize("reuse", [False, True], ids=["values given again", "values reused"])
@pytest.mark.parametrize("name", ["defaults", "cpu", "keys", "monitoring", "worker-autoscaling", "raycluster"])
def test_an_old_release_is_upgraded_rolled_back_and_gone(
    cluster: Cluster, place: Place, name: str, reuse: bool
) -> None:
    values, helm = merged(BASE, VARIANTS[name]), place.helm
    with Chart.load(OLD) as old, Chart.load(CHART) as new:
        helm.install(old, RELEASE, values, namespace=place.name)
        before = held(cluster, place.name)
        helm.upgrade(new, RELEASE, None if reuse else values, namespace=place.name, reuse_values=reuse)
        assert held(cluster, place.name) == before
        helm.rollback(RELEASE, version=1)
        assert held(cluster, place.name) == before
        helm.upgrade(new, RELEASE, values, namespace=place.name)
        helm.uninstall(RELEASE)
    assert cluster.everything(place.name) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_a_release_is_changed_and_leaves_nothing(cluster: Cluster, place: Place, name: str) -> None:
    """An upgrade that touched a field which cannot be changed would be refused."""
    values, helm = merged(BASE, VARIANTS[name]), place.helm
    with Chart.load(CHART) as chart:
        helm.install(chart, RELEASE, values, namespace=place.name)
        helm.upgrade(chart, RELEASE, merged(values, CHANGED), namespace=place.name)
        helm.rollback(RELEASE, version=1)
        helm.uninstall(RELEASE)
    assert cluster.everything(place.name) == []


def test_every_set_of_values_is_taken_by_the_server(
    cluster: Cluster, report_counts: Callable[[str, int], None]
) -> None:
    """Strictly, without making anything; pods of templates too, in a namespace that takes restricted ones alone."""
    for name in ("nvidia", "serving", *PLAIN):
        metadata = {"name": name}
        cluster.ask("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": metadata, "handler": "runc"})
        cluster.ask("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": metadata, "value": 1})
    where, kinds, seen = cluster.namespace("sets", **RESTRICTED), cluster.resources(), 0
    for _, release, values in drawn():
        try:
            found = render(values, release)
        except HelmError:  # test_chart_sets.py looks at what is refused
            continue
        for each in [*found, *pods(found)]:
            group, plural, _ = kinds[f"{each['apiVersion']}/{each['kind']}"]
            cluster.ask(f"{group}/namespaces/{where}/{plural}?dryRun=All&fieldValidation=Strict", each)
        seen += 1
        if seen == SETS:
            break
    report_counts("sets", seen)


def pods(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for template in templates(found):
        metadata = {**template["metadata"], "name": "pod"}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_openshift_s_group_takes_the_ids_away(cluster: Cluster, place: Place) -> None:
    cluster.define("SecurityContextConstraints", "security.openshift.io/v1")
    with Chart.load(CHART) as chart:
        place.helm.install(chart, RELEASE, BASE, namespace=place.name)
    for component in ("gateway", "worker"):
        deployment = cluster.ask(f"/apis/apps/v1/namespaces/{place.name}/deployments/{RELEASE}-{component}")
        context = deployment["spec"]["template"]["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    place.helm.uninstall(RELEASE)
