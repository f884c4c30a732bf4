"""A release of several models: each has workers of its own, and the gateways serve all by name."""

from typing import Any

import pytest

from tests.deploy.full.charts import BASE, MODELS, render
from tests.deploy.test_values import merged

WORKERS = ["llm-worker", "llm-worker-small", "llm-worker-mid"]


@pytest.fixture(scope="module")
def release() -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in render(merged(BASE, MODELS))}


def test_each_model_has_workers_that_no_other_selects(release: dict[tuple[str, str], dict[str, Any]]) -> None:
    deployments = [release["Deployment", name] for name in WORKERS]
    selectors = [one["spec"]["selector"]["matchLabels"] for one in deployments]
    assert len({str(one) for one in selectors}) == 3
    for one, selector in zip(deployments, selectors, strict=True):
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert [other.items() <= labels.items() for other in selectors].count(True) == 1
        spread = one["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
        assert spread == selector == release["Service", one["metadata"]["name"]]["spec"]["selector"]


def test_workers_have_what_their_entry_states_and_else_what_all_have(
    release: dict[tuple[str, str], dict[str, Any]],
) -> None:
    args = {name: _pod(release, name)["args"] for name in WORKERS}
    assert [
        f"--model-name={model}" in args[name] for name, model in zip(WORKERS, ("large", "small", "mid"), strict=True)
    ]
    assert [next(arg for arg in args[name] if arg.startswith("--model=")) for name in WORKERS] == [
        "--model=/models/large", "--model=/models/small", "--model=/models/mid",
    ]  # fmt: skip
    assert ["--drafter=/models/drafter" in args[name] for name in WORKERS] == [True, False, True]
    assert ["--slots=128" in args[name] for name in WORKERS] == [False, True, False]
    assert all("--target.widths=1,4" in args[name] for name in WORKERS)
    gpus = [_pod(release, name)["resources"]["limits"]["nvidia.com/gpu"] for name in WORKERS]
    assert gpus == [2, 1, 2]
    assert [release["Deployment", name]["spec"].get("replicas") for name in WORKERS] == [None, None, 3]


def test_gateways_serve_all_of_them_and_follow_every_fleet(release: dict[tuple[str, str], dict[str, Any]]) -> None:
    args = _pod(release, "llm-gateway")["args"]
    assert "--models=large=/models/large,small=/models/small,mid=/models/mid" in args
    fleets = ",".join(f"{name}.inference.svc:50050" for name in WORKERS)
    assert f"--watch-dns={fleets}" in args
    assert not [arg for arg in args if arg.startswith(("--tokenizer=", "--model="))]


def test_what_watches_and_guards_pods_knows_all_of_them(release: dict[tuple[str, str], dict[str, Any]]) -> None:
    for kind in ("PodDisruptionBudget", "PodMonitor", "NetworkPolicy"):
        assert {name for known, name in release if known == kind} == {*WORKERS, "llm-gateway"}
    ports = [len(release["PodMonitor", name]["spec"]["podMetricsEndpoints"]) for name in WORKERS]
    assert ports == [5, 3, 5]
    peers = release["NetworkPolicy", "llm-gateway"]["spec"]["egress"][1]["to"]
    reached = [one["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for one in peers]
    assert {"worker", "worker-small", "worker-mid"} <= {*reached}


def test_scalers_count_requests_of_their_model(release: dict[tuple[str, str], dict[str, Any]]) -> None:
    scaled = {name: one for (kind, name), one in release.items() if kind == "ScaledObject"}
    assert {*scaled} == {"llm-worker", "llm-worker-small"}
    for name, model, threshold in (("llm-worker", "large", "96"), ("llm-worker-small", "small", "96")):
        trigger = scaled[name]["spec"]["triggers"][0]["metadata"]
        assert f'model_name="{model}"' in trigger["query"]
        assert "gateway" not in trigger["query"]
        assert trigger["threshold"] == threshold


def test_one_model_is_rendered_as_before() -> None:
    """Selectors of a Deployment cannot change, and flags of a gateway would restart it."""
    (gateway,) = [
        one for one in render(BASE) if one["metadata"]["name"] == "llm-gateway" and one["kind"] == "Deployment"
    ]
    args = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--watch-dns=llm-worker.inference.svc:50050" in args
    assert {"--tokenizer=/models/target", "--model=model"} <= {*args}


def _pod(release: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    container: dict[str, Any] = release["Deployment", name]["spec"]["template"]["spec"]["containers"][0]
    return container
