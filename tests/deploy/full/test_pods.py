"""What the values add to pods: where they run, what they mount and fetch, whom they reach."""

from typing import Any

import pytest

from tests.deploy.full.charts import BASE, PLACED, RAYCLUSTER, render, templates, variant
from tests.deploy.test_values import merged


def pods(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Pod templates by component."""
    return {t["metadata"]["labels"]["app.kubernetes.io/component"]: t for t in templates(documents)}


def services(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "Service"}


@pytest.mark.parametrize(
    ("name", "component"),
    [("placed-anywhere", "gateway"), ("placed-anywhere", "worker"), ("raycluster-placed", "worker")],
)
def test_pods_take_what_a_cluster_asks_for(name: str, component: str) -> None:
    template = pods(variant(name))[component]
    spec, container = template["spec"], template["spec"]["containers"][0]
    assert template["metadata"]["annotations"] == PLACED["podAnnotations"]
    assert template["metadata"]["labels"]["team"] == "a"
    assert (spec["runtimeClassName"], spec["priorityClassName"]) == ("nvidia", "serving")
    assert spec.items() >= PLACED["podSpec"].items()
    assert PLACED["extraVolumes"][0] in spec["volumes"]
    assert PLACED["extraVolumeMounts"][0] in container["volumeMounts"]
    assert PLACED["extraEnv"][0] in container["env"]
    assert container["envFrom"] == PLACED["envFrom"]


def test_the_head_needs_no_runtime_of_gpus() -> None:
    head = pods(variant("raycluster-placed"))["head"]
    assert "runtimeClassName" not in head["spec"]
    assert head["spec"]["priorityClassName"] == "serving"
    assert head["spec"]["schedulerName"] == "volcano"


def test_a_part_of_a_gpu_is_asked_for_by_its_name() -> None:
    limits = pods(variant("mig"))["worker"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/mig-3g.40gb"] == 1
    assert "nvidia.com/gpu" not in limits


@pytest.mark.parametrize("name", ["h100-h200", "l40s"])
def test_gpu_profiles_tolerate_the_usual_taint(name: str) -> None:
    worker = pods(variant(name))["worker"]["spec"]
    assert worker["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_compiled_kernels_outlive_a_pod_on_a_volume() -> None:
    spec = pods(variant("placed-anywhere"))["worker"]["spec"]
    container = spec["containers"][0]
    assert {"name": "TRITON_CACHE_DIR", "value": "/kernels/triton"} in container["env"]
    assert {"name": "kernels", "mountPath": "/kernels"} in container["volumeMounts"]
    assert {"name": "kernels", "persistentVolumeClaim": {"claimName": "kernels"}} in spec["volumes"]


@pytest.mark.parametrize(
    ("name", "protocol"), [("defaults", "kubernetes.io/h2c"), ("client-tls", None), ("cert-manager", None)]
)
def test_only_plaintext_is_announced_as_such(name: str, protocol: str | None) -> None:
    found = services(variant(name))
    for service in ("llm", "llm-headless"):
        assert [port.get("appProtocol") for port in found[service]["ports"]] == [protocol]


def test_each_certificate_has_an_issuer_of_its_own() -> None:
    found = {
        d["metadata"]["name"]: d["spec"]["issuerRef"] for d in variant("cert-manager") if d["kind"] == "Certificate"
    }
    assert found["llm-client"] == {"name": "letsencrypt", "kind": "ClusterIssuer"}
    assert found["llm-internal"] == {"name": "private-ca", "kind": "Issuer"}


def test_gateways_fetch_the_tokenizer_and_workers_the_model() -> None:
    found = pods(variant("download"))
    images = {name: pod["spec"]["initContainers"][0]["image"] for name, pod in found.items()}
    assert images == {name: f"registry.example/paceline/{name}:0.1.0" for name in ("gateway", "worker")}
    commands = {name: str(pod["spec"]["initContainers"][0]["command"]) for name, pod in found.items()}
    assert "--include" in commands["gateway"] and "tokenizer*" in commands["gateway"]
    assert "--include" not in commands["worker"]
    sizes = {
        name: next(v["emptyDir"]["sizeLimit"] for v in pod["spec"]["volumes"] if v["name"] == "models")
        for name, pod in found.items()
    }
    assert sizes == {"gateway": "1Gi", "worker": "20Gi"}


def test_a_download_has_a_token_a_home_and_resources() -> None:
    for pod in pods(variant("download")).values():
        (container,) = pod["spec"]["initContainers"]
        env = {each["name"]: each for each in container["env"]}
        assert env["HOME"]["value"] == "/tmp"
        assert env["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
        assert container["resources"].keys() == {"requests", "limits"}


def test_gateways_may_mount_a_claim_of_the_tokenizer_alone() -> None:
    claims = {
        name: next(v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if v["name"] == "models")
        for name, pod in pods(variant("tokenizer-claim")).items()
    }
    assert claims == {"gateway": "tokenizer", "worker": "models"}


def test_keys_are_a_folder_that_changes_with_their_secret() -> None:
    """A mounted file of a Secret never changes, and a checksum would replace every gateway for one revoked key."""
    template = pods(variant("keys"))["gateway"]
    (container,) = template["spec"]["containers"]
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "api-keys"]
    assert mount == {"name": "api-keys", "mountPath": "/auth", "readOnly": True}
    assert "--tenants=/auth/keys.toml" in container["args"]
    assert "annotations" not in template["metadata"]


@pytest.mark.parametrize("seconds", [5, 45])
def test_the_time_to_leave_holds_propagation_and_streams(seconds: int) -> None:
    documents = render(merged(BASE, {"gateway": {"propagationSeconds": seconds}}))
    spec = pods(documents)["gateway"]["spec"]
    assert f"--propagation-s={seconds}" in spec["containers"][0]["args"]
    assert spec["terminationGracePeriodSeconds"] >= seconds + 60 + 5


def egress(name: str) -> dict[str, list[dict[str, Any]]]:
    """Egress rules of each component's policy."""
    policies = [d for d in variant(name) if d["kind"] == "NetworkPolicy"]
    assert all(d["spec"]["policyTypes"] == ["Ingress", "Egress"] for d in policies)
    return {d["metadata"]["name"].removeprefix("llm-"): d["spec"]["egress"] for d in policies}


def test_pods_reach_names_and_one_another_and_nothing_else() -> None:
    names = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    found = egress("egress")
    given = {"ports": [{"port": 4317}]}
    assert found["worker"] == [names, given]
    dns, to, extra = found["gateway"]
    assert (dns, extra) == (names, given)
    reached = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in to["to"]]
    assert sorted(reached) == ["head", "worker"]
    assert egress("raycluster-egress").keys() == {"gateway", "worker", "head"}
    assert len(egress("raycluster-egress")["worker"]) == 2


def test_policies_leave_egress_alone_unless_asked() -> None:
    policies = [d["spec"] for d in variant("defaults") if d["kind"] == "NetworkPolicy"]
    assert [(p["policyTypes"], "egress" in p) for p in policies] == [(["Ingress"], False)] * len(policies)


def test_a_drained_node_leaves_one_of_two_pairs() -> None:
    documents = variant("two-pairs")
    (workers,) = [d["spec"] for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == "llm-worker"]
    (budget,) = [
        d["spec"] for d in documents if d["kind"] == "PodDisruptionBudget" and d["metadata"]["name"] == "llm-worker"
    ]
    assert workers["replicas"] - budget["maxUnavailable"] == 1
    assert workers["template"]["spec"]["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize("mode", [{}, RAYCLUSTER])
def test_ids_of_pairs_name_nothing_that_a_new_pod_makes_anew(mode: dict[str, Any]) -> None:
    found = pods(render(merged(BASE, {"workers": mode})))
    args = [arg for pod in found.values() for c in pod["spec"]["containers"] for arg in c.get("args", ())]
    (prefix,) = [arg.partition("=")[2] for arg in args if arg.startswith("--pair-prefix=")]
    assert prefix == ("llm-" if mode else "llm-worker-$(POD_IP)-")
