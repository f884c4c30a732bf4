"""Fields that a cluster asks for: services, budgets, spread, claims of devices, scalers, the release's test."""

import re
from typing import Any

import pytest

from services.common.serving.server import LIVENESS
from tests.deploy.full.charts import BASE, DOWNLOAD, NOTES, VARIANTS, render, rendered, templates
from tests.deploy.full.test_chart_sets import PARTS
from tests.deploy.test_drift import catalogue, metric_names
from tests.deploy.test_values import merged


def part(name: str) -> list[dict[str, Any]]:
    return render(merged(BASE, PARTS[name]))


def only(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The one object of a kind and a name."""
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pods(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {t["metadata"]["labels"]["app.kubernetes.io/component"]: t["spec"] for t in templates(documents)}


def test_a_digest_stands_for_its_image_alone() -> None:
    images = {name: pod["containers"][0]["image"] for name, pod in pods(part("digests")).items()}
    digests = PARTS["digests"]["image"]["digests"]
    assert images == {name: f"registry.example/paceline/{name}@{digests[name]}" for name in ("gateway", "worker")}
    half = merged(BASE, {"image": {"tag": "7", "digests": {"gateway": digests["gateway"]}}})
    images = {name: pod["containers"][0]["image"] for name, pod in pods(render(half)).items()}
    assert images["worker"] == "registry.example/paceline/worker:7"


@pytest.mark.parametrize(
    "repository",
    ["paceline", "localhost/p", "registry.example:5000/a/b", "[fd00::1]:5000/a_b/c--d", "Registry.example/a"],
)
def test_images_lie_in_any_registry(repository: str) -> None:
    images = [
        container["image"]
        for pod in templates(render(merged(BASE, {"image": {"repository": repository, "tag": "1"}})))
        for container in pod["spec"]["containers"]
    ]
    assert images == [f"{repository}/gateway:1", f"{repository}/worker:1"]


def test_variables_hold_numbers_as_they_are_given() -> None:
    """Helm reads numbers as floats, of which a million would be 1e+06."""
    given = {"A": 1_000_000, "B": 12_345_678, "C": 0.5, "D": True, "E": "1e6", "F": 'a: "b" $(C) \\ #', "G": -3}
    texts = {"A": "1000000", "B": "12345678", "C": "0.5", "D": "true", "E": "1e6", "F": given["F"], "G": "-3"}
    download = {**DOWNLOAD, "env": given}
    values = {
        "gateway": {"env": given},
        "workers": {"env": given},
        "model": {"existingClaim": "", "download": download},
    }
    for pod in templates(render(merged(BASE, values))):
        for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
            found = {each["name"]: each.get("value") for each in container["env"]}
            assert {name: found[name] for name in texts} == texts


def test_common_labels_and_annotations_are_everywhere_and_select_nothing() -> None:
    given = PARTS["common"]
    documents = render(merged(merged(BASE, given), PARTS["monitoring"]))
    for each in [*documents, *templates(documents)]:
        assert each["metadata"]["labels"].items() >= given["commonLabels"].items(), each
        assert each["metadata"]["annotations"].items() >= given["commonAnnotations"].items(), each
    for each in documents:
        selector = str(each.get("spec", {}).get("selector"))
        assert "team" not in selector, "a selector of a Deployment cannot be changed"


def test_the_service_takes_the_fields_of_a_load_balancer() -> None:
    documents = part("balancer")
    spec, given = only(documents, "Service", "llm")["spec"], PARTS["balancer"]["gateway"]["service"]
    for field in ("type", "loadBalancerClass", "loadBalancerSourceRanges", "externalTrafficPolicy", "sessionAffinity"):
        assert spec[field] == given[field]
    assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 60}}
    assert "loadBalancerClass" not in only(documents, "Service", "llm-headless")["spec"]
    ports = {port["name"]: port.get("nodePort") for port in only(part("node-ports"), "Service", "llm")["spec"]["ports"]}
    assert ports == {"grpc": 30051, "http": 30080}


@pytest.mark.parametrize(("name", "families"), [("ipv6", ["IPv6"]), ("dual", ["IPv6", "IPv4"])])
def test_ipv6_reaches_every_listener_and_service(name: str, families: list[str]) -> None:
    documents = render(merged(merged(BASE, PARTS[name]), {"gateway": {"httpPort": 8000}}))
    for each in documents:
        if each["kind"] == "Service":
            assert each["spec"]["ipFamilies"] == families
    listening = r"--(grpc|http|health|metrics|listen)=(.*):\d+"
    bound = [re.fullmatch(listening, arg) for pod in pods(documents).values() for arg in pod["containers"][0]["args"]]
    assert [match[2] for match in bound if match] == ["[::]"] * 7


@pytest.mark.parametrize(("values", "policy"), [({}, "AlwaysAllow"), (PARTS["old-budget"], None)])
def test_a_budget_holds_no_pod_that_is_dead(values: dict[str, Any], policy: str | None) -> None:
    budgets = [each["spec"] for each in render(merged(BASE, values)) if each["kind"] == "PodDisruptionBudget"]
    assert [budget.get("unhealthyPodEvictionPolicy") for budget in budgets] == [policy] * 2


def test_a_deployment_takes_fields_of_ones_own_whole() -> None:
    documents = part("rollout")
    for name in ("llm-gateway", "llm-worker"):
        spec = only(documents, "Deployment", name)["spec"]
        assert spec["strategy"] == {"type": "Recreate"}, "a Deployment with it takes no rollingUpdate"
        assert (spec["minReadySeconds"], spec["revisionHistoryLimit"]) == (5, 2)
    worker = only(render(BASE), "Deployment", "llm-worker")["spec"]
    assert worker["strategy"] == {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert worker["progressDeadlineSeconds"] == 2520


def test_every_endpoint_is_scraped_as_it_is_given() -> None:
    given = PARTS["scraped"]["metrics"]["podMonitor"]["endpoint"]
    monitors = [each for each in part("scraped") if each["kind"] == "PodMonitor"]
    endpoints = [one for each in monitors for one in each["spec"]["podMetricsEndpoints"]]
    assert len(endpoints) >= 4
    assert all({**one, **given} == one and one["interval"] == "15s" and one["port"] for one in endpoints)


def test_a_hard_spread_counts_pods_of_one_rollout() -> None:
    for pod in pods(part("hard-spread")).values():
        (constraint,) = pod["topologySpreadConstraints"]
        assert (constraint["whenUnsatisfiable"], constraint["maxSkew"]) == ("DoNotSchedule", 2)
        assert constraint["matchLabelKeys"] == ["pod-template-hash"]


def test_claims_take_the_place_of_a_counted_gpu() -> None:
    worker = pods(part("claims"))["worker"]
    (container,) = worker["containers"]
    assert worker["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": "one-gpu"},
        {"name": "network", "resourceClaimName": "rdma"},
    ]
    assert container["resources"]["claims"] == [{"name": "gpu", "request": "gpu"}, {"name": "network"}]
    assert not [name for name in container["resources"]["limits"] if "gpu" in name]
    assert "--placement=gpu" in container["args"]
    assert "resourceClaims" not in pods(part("claims"))["gateway"]


@pytest.mark.parametrize("name", ["defaults", "fetched", "raycluster", "inference-pool"])
def test_containers_of_ones_own_stand_behind_the_chart_s_and_begin_before_a_download(name: str) -> None:
    given = PARTS["sidecars"]
    for component, pod in pods(render(merged(merged(BASE, VARIANTS[name]), given))).items():
        *ours, last = (container["name"] for container in pod["containers"])
        before = [container["name"] for container in pod.get("initContainers", ())]
        if component == "head":
            assert "proxy" not in {*ours, last} and before == []
            continue
        assert ours[0] in ("gateway", "worker", "ray") and last == "proxy"
        assert before == (["mesh", "download"] if name == "fetched" else ["mesh"])
        assert pod.items() >= given["gateway"]["podSpec"].items()


def test_two_pairs_share_each_gpu() -> None:
    documents = part("halves")
    (container,) = pods(documents)["worker"]["containers"]
    assert {"--pairs=4", "--pairs-per-gpu=2"} <= set(container["args"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2
    targets = [port["containerPort"] for port in container["ports"] if port["name"].startswith("target-")]
    assert targets == [50061, 50064, 50067, 50070]
    policy = only(documents, "NetworkPolicy", "llm-worker")["spec"]["ingress"]
    assert {port["port"] for port in policy[0]["ports"]} == {50050, *targets}


def test_gateways_are_scaled_by_what_is_given() -> None:
    spec = only(part("hpa"), "HorizontalPodAutoscaler", "llm-gateway")["spec"]
    given = PARTS["hpa"]["gateway"]["autoscaling"]
    assert (spec["metrics"], spec["behavior"]) == (given["metrics"], given["behavior"])
    usual = render(merged(BASE, {"gateway": {"autoscaling": {"enabled": True}}}))
    (metric,) = only(usual, "HorizontalPodAutoscaler", "llm-gateway")["spec"]["metrics"]
    assert metric["resource"]["name"] == "cpu"


def test_workers_go_to_zero_and_come_back_for_requests_that_wait_in_gateways() -> None:
    documents = part("zero")
    spec = only(documents, "ScaledObject", "llm-worker")["spec"]
    assert (spec["minReplicaCount"], spec["cooldownPeriod"]) == (0, 600)
    (trigger,) = spec["triggers"]
    assert trigger["authenticationRef"] == {"name": "prometheus", "kind": "ClusterTriggerAuthentication"}
    assert trigger["metadata"]["authModes"] == "bearer"
    named = metric_names(trigger["metadata"]["query"])
    assert "paceline_gateway_inflight_requests" in named
    assert named <= catalogue()
    (gateway,) = pods(documents)["gateway"]["containers"]
    assert gateway["readinessProbe"]["grpc"]["service"] == LIVENESS, "a Service without ready pods takes no request"
    assert "--wait-target-s=600" in gateway["args"]


def test_gateways_are_ready_with_a_pair_and_have_started_without_one() -> None:
    """Loading a model may take longer than any gateway's start, and who restarts for want of a pair helps nobody."""
    (gateway,) = pods(render(BASE))["gateway"]["containers"]
    assert "service" not in gateway["readinessProbe"]["grpc"]
    assert gateway["startupProbe"]["grpc"]["service"] == LIVENESS


def test_the_release_s_test_asks_every_gateway_s_health() -> None:
    (pod,) = [each for each in render(BASE) if each["kind"] == "Pod"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    *_, program, address, seconds = container["command"]
    compile(program, "test", "exec")
    assert (address, float(seconds)) == ("llm-headless.inference.svc:50052", 60.0)
    assert container["image"] == "registry.example/paceline/gateway:0.1.0"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "helm test llm" in next(text for name, text in rendered(BASE).items() if name.endswith(NOTES))
