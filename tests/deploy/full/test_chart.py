"""The chart with the real Helm SDK: lint, a matrix of values, Kubernetes schemas, pod security."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from helm_python import lint

from deploy.cluster import derived
from deploy.cluster.settings import ClusterSettings
from services.common.serving import settings
from services.common.serving.settings import Choice
from services.target.settings import TargetSettings
from tests.deploy.full.api_server import DEFAULT_ACCOUNT, serving
from tests.deploy.full.charts import (
    BASE,
    NAMESPACE,
    RAYCLUSTER,
    VARIANTS,
    VERSIONS,
    notes,
    render,
    render_at,
    render_in,
    templates,
    variant,
)
from tests.deploy.full.kubernetes import refusals, with_pods
from tests.deploy.test_drift import CHART, catalogue, metric_names
from tests.deploy.test_values import VALUES, merged


@pytest.mark.parametrize("name", VARIANTS)
def test_strict_lint(name: str) -> None:
    assert lint(CHART, values=merged(BASE, VARIANTS[name]), strict=True)["errors"] == []


SINCE = {"device-claims": "1.32"}
"""Versions of Kubernetes that first have what a set of values asks for; what it renders depends on them."""


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts(version: str, report_counts: Callable[[str, int], None]) -> None:
    known = [name for name in VARIANTS if version >= SINCE.get(name, version)]
    rendered = [render_at(version, merged(BASE, VARIANTS[n])) if n in SINCE else variant(n) for n in known]
    found = [each for documents in rendered for each in with_pods(documents)]
    assert refusals(version, found) == []
    report_counts("manifests", len(found))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_refuses_what_it_does_not_know(version: str) -> None:
    for spoilt in ({"replica": 1}, {"replicas": "1"}, {"strategy": {"rollingUpdate": {"maxSurges": 1}}}):
        deployments = [each for each in variant("defaults") if each["kind"] == "Deployment"]
        assert len(refusals(version, [merged(each, {"spec": spoilt}) for each in deployments])) == len(deployments) == 2


@pytest.mark.parametrize("name", VARIANTS)
def test_pods_are_restricted_and_probed(name: str) -> None:
    found = list(templates(variant(name)))
    assert len(found) == (3 if "raycluster" in name else 2) + len(VARIANTS[name].get("models", []))
    for pod in (template["spec"] for template in found):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        # A Service named "paceline" must not become variables that the services read as settings.
        assert pod["enableServiceLinks"] is False
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
            assert "/tmp" in writable
        for container in pod["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
            assert container["resources"]["requests"]
        mounts = {mount["name"] for c in pod["containers"] for mount in c["volumeMounts"]}
        assert mounts <= {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("name", ["defaults", "raycluster", "service-monitor", "raycluster-service-monitor"])
def test_selectors_meet_pods(name: str) -> None:
    documents = variant(name)
    labels = [template["metadata"]["labels"].items() for template in templates(documents)]
    kinds = ("Service", "PodDisruptionBudget", "NetworkPolicy")
    selecting = [document for document in documents if document["kind"] in kinds]
    for document in selecting:
        spec = document["spec"]
        selector = spec["podSelector"]["matchLabels"] if "podSelector" in spec else spec["selector"]
        selector = selector.get("matchLabels", selector)
        assert sum(selector.items() <= pod for pod in labels) == 1, document["metadata"]["name"]
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        assert sum(document["kind"] == kind for document in selecting) == len(labels)


@pytest.mark.parametrize("name", ["defaults", "raycluster"])
def test_pods_have_time_to_drain(name: str) -> None:
    for pod in (template["spec"] for template in templates(variant(name))):
        component = pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"]
        grace = VALUES["gateway" if component == "gateway" else "workers"]["graceSeconds"]
        assert pod["terminationGracePeriodSeconds"] > grace
        for container in pod["containers"]:
            if container["name"] == "ray":
                command = container["lifecycle"]["preStop"]["exec"]["command"]
                assert command[2:] == ["deploy.cluster.leave", "/tmp/paceline", str(grace)]


@pytest.mark.parametrize(
    ("monitors", "endpoints"), [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")]
)
def test_monitors_name_ports_that_are_there(monitors: str, endpoints: str) -> None:
    key = monitors[0].lower() + monitors[1:]
    documents = render(merged(BASE, {"workers": {"gpusPerPod": 2}, "metrics": {key: {"enabled": True}}}))
    ports = {port["name"] for pod in templates(documents) for c in pod["spec"]["containers"] for port in c["ports"]}
    found = [document["spec"] for document in documents if document["kind"] == monitors]
    named = [endpoint["port"] for spec in found for endpoint in spec[endpoints]]
    assert sorted(named) == sorted(["metrics", "metrics", *(f"{s}-metrics-{i}" for s in "td" for i in (0, 1))])
    assert set(named) <= ports
    if monitors == "ServiceMonitor":
        services = [document for document in documents if document["kind"] == "Service"]
        for spec in found:
            chosen = spec["selector"]["matchLabels"].items()
            (service,) = [s for s in services if chosen <= s["metadata"]["labels"].items()]
            assert {port["name"] for port in service["spec"]["ports"]} == {each["port"] for each in spec[endpoints]}


def test_clients_find_every_gateway_by_name_with_a_certificate_for_it() -> None:
    documents = variant("cert-manager")
    services = {
        document["metadata"]["name"]: document["spec"] for document in documents if document["kind"] == "Service"
    }
    assert services["llm-headless"]["clusterIP"] == "None"
    assert services["llm-headless"]["selector"] == services["llm"]["selector"]
    (client,) = [d["spec"] for d in documents if d["kind"] == "Certificate" and d["metadata"]["name"] == "llm-client"]
    assert {f"{name}.inference.svc" for name in ("llm", "llm-headless")} <= set(client["dnsNames"])


def test_a_scaler_decides_how_many_pods_there_are() -> None:
    documents = variant("worker-autoscaling")
    (workers,) = [
        document
        for document in documents
        if document["metadata"]["name"] == "llm-worker" and document["kind"] == "Deployment"
    ]
    (scaler,) = [document for document in documents if document["kind"] == "ScaledObject"]
    assert "replicas" not in workers["spec"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == workers["metadata"]["name"]
    (trigger,) = scaler["spec"]["triggers"]
    assert trigger["metadata"]["threshold"] == str(64 * 2 * 75 // 100)
    query = trigger["metadata"]["query"]
    assert metric_names(query) <= catalogue()
    assert query.count(f'namespace="{NAMESPACE}"') == query.count("paceline_") == 3, (
        "a release of another namespace counts"
    )


def test_the_performance_profile_shares_the_gpu() -> None:
    (worker,) = [t["spec"] for t in templates(variant("performance")) if t["spec"]["containers"][0]["name"] == "worker"]
    assert "--mps=true" in worker["containers"][0]["args"]


@pytest.mark.parametrize(("name", "container"), [("settings", "worker"), ("raycluster-settings", "controller")])
def test_settings_of_target_and_drafter_reach_the_controller(name: str, container: str) -> None:
    containers = [c for pod in templates(variant(name)) for c in pod["spec"]["containers"]]
    (args,) = [c["args"] for c in containers if c["name"] == container]
    given = [
        arg for arg in args if not arg.startswith(("--pairs", "--host", "--ray-address", "--mps", "--session-secret"))
    ]
    loaded = settings.load(ClusterSettings, given, {}, derived.check)
    workers = VARIANTS[name]["workers"]
    assert loaded.target_settings == {name: _read(name, value) for name, value in workers["target"].items()}
    assert loaded.drafter_settings == workers.get("drafter", {})


def _read(name: str, value: object) -> object:
    """A value of the chart as settings read it: `true` of a setting with more than two choices is a word."""
    if isinstance(value, bool) and get_type_hints(TargetSettings)[name] == Choice:
        return str(value).lower()
    return tuple(value) if isinstance(value, list) else value


def test_http_has_one_port_from_the_service_to_the_gateway() -> None:
    """Without one nothing of it is there."""
    for port in (0, 8000):
        found = render(merged(BASE, {"gateway": {"httpPort": port}}))
        by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
        gateway = by_name["Deployment", "llm-gateway"]["spec"]["template"]["spec"]["containers"][0]
        assert (f"--http=0.0.0.0:{port}" in gateway["args"]) == bool(port)
        assert ("--http-page=true" in gateway["args"]) == bool(port)
        assert ({"name": "http", "containerPort": port} in gateway["ports"]) == bool(port)
        for service in ("llm", "llm-headless"):
            ports = by_name["Service", service]["spec"]["ports"]
            assert ({"name": "http", "port": port, "targetPort": "http"} in ports) == bool(port)
        allowed = by_name["NetworkPolicy", "llm-gateway"]["spec"]["ingress"][0]["ports"]
        assert ({"port": port} in allowed) == bool(port)


def test_the_page_can_be_switched_off() -> None:
    found = render(merged(BASE, {"gateway": {"httpPort": 8000, "httpPage": False}}))
    gateway = next(one for one in found if (one["kind"], one["metadata"]["name"]) == ("Deployment", "llm-gateway"))
    assert "--http-page=false" in gateway["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("name", ["defaults", "raycluster", "internal-mtls"])
def test_gateways_and_targets_share_a_secret(name: str) -> None:
    with serving(DEFAULT_ACCOUNT) as address:
        documents = render_in(address, merged(BASE, VARIANTS[name]))
    (made,) = [d for d in documents if d["kind"] == "Secret"]
    assert len(base64.b64decode(made["data"]["secret"])) == 64
    flags = {
        "gateway": "--target-secret-file=",
        "worker": "--session-secret-file=",
        "controller": "--session-secret-file=",
    }
    pods = [pod["spec"] for pod in templates(documents)]
    holders = [(pod, c) for pod in pods for c in pod["containers"] if c["name"] in flags]
    assert len(holders) == 2
    for pod, container in holders:
        (path,) = [arg.partition("=")[2] for arg in container["args"] if arg.startswith(flags[container["name"]])]
        (mount,) = [m for m in container["volumeMounts"] if m["mountPath"] == str(Path(path).parent)]
        (volume,) = [v for v in pod["volumes"] if v["name"] == mount["name"]]
        assert (volume["secret"]["secretName"], Path(path).name) == (made["metadata"]["name"], "secret")


def test_a_secret_of_ones_own_takes_the_place_of_the_charts() -> None:
    with serving(DEFAULT_ACCOUNT) as address:
        documents = render_in(address, merged(BASE, {"auth": {"sessionSecretName": "ours"}}))
    assert not [d for d in documents if d["kind"] == "Secret"]
    volumes = [v for pod in templates(documents) for v in pod["spec"]["volumes"] if v["name"] == "session"]
    assert [v["secret"]["secretName"] for v in volumes] == ["ours", "ours"]


@pytest.mark.parametrize(("mode", "arguments"), [({}, ["--mps=auto"]), (RAYCLUSTER, [])])
def test_mps_is_for_pods_with_a_controller_of_their_own(mode: dict[str, Any], arguments: list[str]) -> None:
    pods = templates(render(merged(BASE, {"workers": mode})))
    args = [arg for pod in pods for c in pod["spec"]["containers"] for arg in c.get("args", ())]
    assert [arg for arg in args if arg.startswith("--mps")] == arguments


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "defaults",
            (
                "deployment/llm-worker",
                "paceline generate",
                "No API keys",
                "NOT SECURE",
                "ONE WORKER POD",
                "ADDRESS-pair-N",
            ),
        ),
        ("raycluster", ("component=head", "paceline generate", "EXPERIMENTAL")),
        ("client-mtls", ("-cacert ca.crt -authority llm.inference.svc", "-cert client.crt")),
        ("keys", ("-plaintext", "Bearer $KEY")),
        ("performance", ("MPS is on",)),
    ],
)
def test_notes_tell_a_first_request(name: str, said: tuple[str, ...]) -> None:
    text = notes(merged(BASE, VARIANTS[name]))
    assert all(each in text for each in ("port-forward", *said)), text


def test_runbooks_are_where_the_values_say() -> None:
    place = "https://wiki.example/operate"
    documents = render(merged(merged(BASE, VARIANTS["monitoring"]), {"metrics": {"runbooks": place}}))
    shown = [document for document in documents if document["kind"] in ("PrometheusRule", "ConfigMap")]
    assert len(shown) == 2
    for document in shown:
        assert f"{place}/pair-degraded.md" in json.dumps(document)
        assert "docs/operate" not in json.dumps(document)
