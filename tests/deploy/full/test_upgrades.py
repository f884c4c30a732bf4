"""What an upgrade changes of a running release, by the objects that Helm would send."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helm_python import Chart

from tests.deploy.full.api_server import serving, workload
from tests.deploy.full.charts import (
    AUTOSCALING,
    BASE,
    NOTES,
    RAYCLUSTER,
    documents,
    render,
    render_in,
    rendered_in,
    templates,
)
from tests.deploy.test_drift import CHART
from tests.deploy.test_values import merged

SCALED = {"gateway": {"autoscaling": {"enabled": True}}, "workers": {"autoscaling": AUTOSCALING}}


def replicas(found: list[dict[str, Any]]) -> dict[str, int | None]:
    """What the manifests say of the number of pods."""
    return {d["metadata"]["name"]: d["spec"].get("replicas") for d in found if d["kind"] == "Deployment"}


def test_a_scaler_that_is_switched_on_keeps_the_pods_that_run() -> None:
    live = {f"deployments/llm-{each}": workload("Deployment", f"llm-{each}", 4) for each in ("gateway", "worker")}
    with serving(live) as address:
        found = render_in(address, merged(BASE, SCALED), upgrade=True)
    assert replicas(found) == {"llm-gateway": 4, "llm-worker": 4}


def test_the_pods_of_the_old_statefulset_are_counted() -> None:
    live = {"statefulsets/llm-worker": workload("StatefulSet", "llm-worker", 3)}
    with serving(live) as address:
        found = render_in(address, merged(BASE, SCALED), upgrade=True)
    assert replicas(found) == {"llm-gateway": None, "llm-worker": 3}


def test_without_a_scaler_the_values_decide() -> None:
    live = {"deployments/llm-worker": workload("Deployment", "llm-worker", 4)}
    with serving(live) as address:
        found = render_in(address, merged(BASE, {"workers": {"replicas": 2}}), upgrade=True)
    assert replicas(found)["llm-worker"] == 2


def test_where_nobody_can_be_asked_a_scaled_release_says_no_number() -> None:
    assert replicas(render(merged(BASE, SCALED))) == {"llm-gateway": None, "llm-worker": None}


@pytest.mark.parametrize("workers", [{}, RAYCLUSTER])
def test_a_new_chart_with_equal_values_replaces_no_pod(workers: dict[str, Any], tmp_path: Path) -> None:
    bumped = tmp_path / "paceline"
    shutil.copytree(CHART, bumped)
    chart = bumped / "Chart.yaml"
    chart.write_text(re.sub(r"^version: .*$", "version: 9.9.9", chart.read_text(), flags=re.MULTILINE))
    values = merged(BASE, {"workers": workers, "auth": {"sessionSecretName": "ours"}})
    with Chart.load(bumped) as loaded:
        after = documents(loaded.render(values=values, name="llm", namespace="inference"))
    before = render(values)
    assert before != after
    assert list(templates(before)) == list(templates(after))


def test_a_new_image_replaces_every_pod() -> None:
    before, after = (list(templates(render(merged(BASE, {"image": {"tag": tag}})))) for tag in ("7", "8"))
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_a_worker_leaves_before_its_successor_comes() -> None:
    """A GPU is free when its pod has gone, so none can start beside it."""
    (workers,) = [
        d["spec"] for d in render(BASE) if d["kind"] == "Deployment" and d["metadata"]["name"] == "llm-worker"
    ]
    assert workers["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    pod = workers["template"]["spec"]
    probe = pod["containers"][0]["startupProbe"]
    longest = pod["terminationGracePeriodSeconds"] + probe["periodSeconds"] * probe["failureThreshold"]
    assert workers["progressDeadlineSeconds"] >= longest


def test_the_notes_of_an_upgrade_tell_of_the_old_statefulset() -> None:
    with serving({}) as address:
        texts = rendered_in(address, BASE, upgrade=True)
    (text,) = [text for name, text in texts.items() if name.endswith(NOTES)]
    assert "its StatefulSet llm-worker is deleted" in text
    assert not [d for d in documents(texts) if d["kind"] == "StatefulSet"]
