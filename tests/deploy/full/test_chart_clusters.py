"""What a cluster decides of a release: its Secret, the ids of its pods, names, and values of an earlier chart."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart, HelmError

from tests.deploy.full.api_server import DEFAULT_ACCOUNT, secret, serving
from tests.deploy.full.charts import (
    BASE,
    NAMESPACE,
    NOTES,
    RAYCLUSTER,
    VARIANTS,
    documents,
    notes,
    render,
    render_in,
    rendered,
    templates,
)
from tests.deploy.test_drift import CHART
from tests.deploy.test_values import merged

OLD = sorted((Path(__file__).parents[1] / "old_values").glob("*.yaml"))
IDS = {"runAsUser", "runAsGroup", "fsGroup"}


def secrets(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == "Secret"]


@pytest.mark.parametrize("name", VARIANTS)
def test_two_renderings_are_the_same(name: str) -> None:
    """As Argo CD compares them: without a cluster to ask, so no Secret is among them."""
    values = merged(BASE, VARIANTS[name])
    found = rendered(values)
    assert found == rendered(values)
    assert secrets(documents(found)) == []


def test_a_cluster_s_secret_is_kept() -> None:
    with serving({**DEFAULT_ACCOUNT, "secrets/llm-session": secret("llm-session", "kept as it is")}) as address:
        before, after = (render_in(address, BASE, upgrade=upgrade) for upgrade in (False, True))
    assert before == after
    (made,) = secrets(before)
    assert made["data"] == secret("llm-session", "kept as it is")["data"]


@pytest.mark.parametrize(
    "there",
    [DEFAULT_ACCOUNT, {"namespaces/default": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "d"}}}],
    ids=["namespace is there", "namespace is still to be made"],
)
def test_a_first_installation_makes_a_secret(there: dict[str, dict[str, Any]]) -> None:
    with serving(there) as address:
        (first,), (second,) = secrets(render_in(address, BASE)), secrets(render_in(address, BASE))
    assert first["data"]["secret"] != second["data"]["secret"]


def test_the_notes_tell_of_a_secret_that_is_not_there() -> None:
    said = "kubectl -n inference create secret generic llm-session"
    assert said in notes(BASE)
    assert said not in notes(merged(BASE, {"auth": {"sessionSecretName": "ours"}}))


def contexts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod["spec"]["securityContext"] for pod in templates(found)]


def test_openshift_chooses_the_ids_of_pods(tmp_path: Path) -> None:
    """A group that is always there takes the place of OpenShift's, which no rendering without a cluster has."""
    chart = tmp_path / "paceline"
    shutil.copytree(CHART, chart)
    helpers = chart / "templates/_helpers.tpl"
    assert '"security.openshift.io/v1"' in helpers.read_text()
    helpers.write_text(helpers.read_text().replace('"security.openshift.io/v1"', '"apps/v1"'))
    with Chart.load(chart) as loaded:
        found = contexts(documents(loaded.render(values=BASE, name="llm", namespace=NAMESPACE)))
    elsewhere = contexts(render(BASE))
    assert len(found) == len(elsewhere) == 2
    for there, here in zip(found, elsewhere, strict=True):
        assert there == {name: value for name, value in here.items() if name not in IDS}
        assert here.keys() >= IDS
        assert there["runAsNonRoot"] is True


def test_fields_of_security_can_be_given_and_taken_away() -> None:
    given = {
        "podSecurityContext": {"runAsUser": None, "fsGroup": 2000, "supplementalGroups": [3000]},
        "containerSecurityContext": {"appArmorProfile": {"type": "RuntimeDefault"}},
    }
    for pod in templates(render(merged(BASE, given))):
        context = pod["spec"]["securityContext"]
        assert "runAsUser" not in context
        assert (context["fsGroup"], context["supplementalGroups"]) == (2000, [3000])
        assert context["runAsNonRoot"] is True
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["appArmorProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


LONGEST = "a-release-that-has-the-most-characters-which-helm-ta"
NAMES = ("llm", "1e3", "123", "yes", "0x1f", "a.b", "a-b", "a.b.c", f"{LONGEST}1", f"{LONGEST}2", LONGEST)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("values", ["monitoring", "raycluster-service-monitor", "service-monitor", "cert-manager"])
def test_names_are_texts_that_kubernetes_takes(name: str, values: str) -> None:
    for each in render(merged(BASE, VARIANTS[values]), name):
        own = each["metadata"]["name"]
        assert isinstance(own, str) and len(own) <= 63
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", own), own
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == name


def test_no_two_releases_share_a_name() -> None:
    said = [
        (each["kind"], each["metadata"]["name"])
        for name in NAMES
        for each in render(merged(BASE, VARIANTS["monitoring"]), name)
    ]
    assert len(said) == len(set(said))
    kept = [each["metadata"]["name"] for each in render(BASE)]
    assert {"llm", "llm-headless", "llm-gateway", "llm-worker"} <= set(kept)


@pytest.mark.parametrize("name", ["llm-worker", "llm-headless", "llm-gateway-metrics", "llm-head-metrics"])
def test_a_release_named_as_a_service_of_another_is_refused(name: str) -> None:
    with pytest.raises(HelmError, match="/fullnameOverride"):
        render(BASE, name)
    assert render(merged(BASE, {"fullnameOverride": "chat"}), name)
    with Chart.load(CHART) as chart:
        assert chart.render(values=BASE, name=name, namespace=NAMESPACE, is_upgrade=True, is_install=False)


@pytest.fixture(scope="module", params=OLD, ids=[path.stem for path in OLD])
def reused(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This chart with the values of an earlier one in the place of its own: helm upgrade --reuse-values."""
    chart = tmp_path_factory.mktemp("chart") / "paceline"
    shutil.copytree(CHART, chart)
    shutil.copy(request.param, chart / "values.yaml")
    return chart


@pytest.mark.parametrize("name", ["defaults", "cpu", "raycluster", "keys", "client-mtls", "monitoring"])
def test_values_of_an_earlier_chart_are_reused(reused: Path, name: str) -> None:
    # What the profiles and the variants say of values that the first charts did not have is left out.
    own = yaml.safe_load((reused / "values.yaml").read_text())
    values = merged(BASE, _known(VARIANTS[name], own))
    if name == "raycluster":
        values = merged(values, {"workers": RAYCLUSTER})
    with Chart.load(reused) as chart:
        found = documents(chart.render(values=values, name="llm", namespace=NAMESPACE, is_upgrade=True))
    kinds = {each["kind"] for each in found}
    assert ("RayCluster" if name == "raycluster" else "Deployment") in kinds
    assert "StatefulSet" not in kinds
    (worker,) = [p for p in templates(found) if p["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"]
    assert worker["spec"]["securityContext"]["runAsNonRoot"] is True


def _known(given: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _known(value, own[key]) if isinstance(value, dict) and isinstance(own[key], dict) and own[key] else value
        for key, value in given.items()
        if key in own
    }


def test_a_value_that_has_moved_is_refused_with_its_new_place() -> None:
    with pytest.raises(HelmError, match=r"want it in workers\.raycluster\.rayVersion"):
        render(merged(BASE, {"workers": {**RAYCLUSTER, "rayVersion": "2.59.0"}}))


def test_a_value_that_nobody_gave_is_not_brought_back() -> None:
    """A limit that was taken away with null stays away, though this chart's own values hold one."""
    limits = {"workers": {"resources": {"limits": {"memory": None}}}}
    found = render(merged(BASE, limits))
    (worker,) = [p for p in templates(found) if p["spec"]["containers"][0]["name"] == "worker"]
    assert worker["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}


def test_notes_are_no_document() -> None:
    assert any(name.endswith(NOTES) for name in rendered(BASE))
