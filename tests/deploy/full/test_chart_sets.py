"""Sets of values that nobody wrote: parts put together by a seeded hand, with names and texts that YAML misreads.

Every set is either accepted, and then several versions of Kubernetes take what it renders there, or refused in words.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helm_python import HelmError

from tests.deploy.full.charts import BASE, DOWNLOAD, VARIANTS, render, render_at, templates
from tests.deploy.full.kubernetes import refusals, with_pods
from tests.deploy.test_values import merged

SETS, SEED = 80, 63
VERSIONS = ("1.30", "1.33", "1.36")
CLAIMS_SINCE = "1.32"
RELEASES = ("llm", "1e3", "123", "yes", "null", "0x1f", "a.b", "n" * 53)
# Texts that are something else where a template forgets to quote them.
MISREAD = ("1e3", "yes", "null", "123", "0x1f", "0o17", "1.5", "true", "on", "2026-11-29", "1_000")
PLAIN = [one for one in MISREAD if re.fullmatch("[a-z0-9.]+", one)]
"""Those that an object may be called."""
AWKWARD = (
    '"quoted"',
    "it's",
    "{{ .Values }}",
    "{a: b}",
    "[a]",
    "a: b",
    "# a",
    "*a",
    "&a",
    "%a",
    "@a",
    "!a",
    "a\\b",
    "é",
)

RESTRICTED = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
"""What a namespace that enforces the restricted standard asks of each container, those that are given too."""

PARTS: dict[str, dict[str, Any]] = {
    "digests": {"image": {"digests": {"gateway": f"sha256:{'a' * 64}", "worker": f"sha256:{'1' * 64}"}}},
    "common": {"commonLabels": {"team": "1e3", "a.b/c": "yes"}, "commonAnnotations": {"note": "a: b # c"}},
    "ipv6": {"bindAddress": "::", "gateway": {"service": {"ipFamilies": ["IPv6"]}}},
    "dual": {
        "bindAddress": "::",
        "gateway": {"service": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}},
    },
    "ids": {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
    "extra": {
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"a": "{{ as it is }}"}},
            'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ include "paceline.name" . }}-own}',
        ]
    },
    "balancer": {
        "gateway": {
            "httpPort": 8000,
            "service": {
                "type": "LoadBalancer",
                "loadBalancerClass": "service.k8s.aws/nlb",
                "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"],
                "externalTrafficPolicy": "Local",
                "internalTrafficPolicy": "Cluster",
                "sessionAffinity": "ClientIP",
                "sessionAffinitySeconds": 60,
                "labels": {"team": "1e3"},
            },
        }
    },
    "node-ports": {
        "gateway": {"httpPort": 8000, "service": {"type": "NodePort", "nodePorts": {"grpc": 30051, "http": 30080}}}
    },
    "hpa": {
        "gateway": {
            "autoscaling": {
                "enabled": True,
                "targetCPUUtilizationPercentage": 0,
                "metrics": [
                    {
                        "type": "Pods",
                        "pods": {
                            "metric": {"name": "paceline_gateway_inflight_requests"},
                            "target": {"type": "AverageValue", "averageValue": "100"},
                        },
                    }
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
            }
        }
    },
    "zero": {
        "gateway": {"waitSeconds": 600},
        "workers": {
            "autoscaling": {
                "enabled": True,
                "minReplicas": 0,
                "prometheusAddress": "https://prometheus.example/a?b=c",
                "authenticationRef": {"name": "prometheus", "kind": "ClusterTriggerAuthentication"},
                "authModes": "bearer",
            }
        },
    },
    "claims": {
        "workers": {
            "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "one-gpu", "request": "gpu"},
                {"name": "network", "resourceClaimName": "rdma"},
            ]
        }
    },
    "sidecars": {
        pods: {
            "extraContainers": [
                {"name": "proxy", "image": "registry.example/proxy:1e3", "args": ["yes", "0x1f"], **RESTRICTED}
            ],
            "extraInitContainers": [
                {"name": "mesh", "image": "registry.example/mesh", "restartPolicy": "Always", **RESTRICTED}
            ],
            "podSpec": {"schedulerName": "volcano", "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.10"]}},
        }
        for pods in ("gateway", "workers")
    },
    "rollout": {
        pods: {"deploymentSpec": {"minReadySeconds": 5, "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 2}}
        for pods in ("gateway", "workers")
    },
    "scraped": {
        "metrics": {
            "podMonitor": {
                "enabled": True,
                "endpoint": {
                    "relabelings": [{"targetLabel": "cluster", "replacement": "1e3"}],
                    "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "python_.*"}],
                    "scrapeTimeout": "5s",
                },
            }
        }
    },
    "halves": {"workers": {"pairsPerGpu": 2, "gpusPerPod": 2}},
    "hard-spread": {"topologySpread": {"whenUnsatisfiable": "DoNotSchedule", "maxSkew": 2, "topologyKey": "a.b/zone"}},
    "budget": {"podDisruptionBudget": {"maxUnavailable": "50%", "unhealthyPodEvictionPolicy": "IfHealthyBudget"}},
    "old-budget": {"podDisruptionBudget": {"unhealthyPodEvictionPolicy": ""}},
    **{name: VARIANTS[name] for name in VARIANTS if name not in ("defaults", "fetched")},
    "fetched": {"model": {"existingClaim": "", "download": {**DOWNLOAD, "env": {"A": "yes", "B": 1.5, "C": True}}}},
}


def texts(hand: random.Random) -> dict[str, Any]:
    """A text that YAML could misread in every place that takes one."""

    def name() -> str:
        return hand.choice(PLAIN)

    def text() -> str:
        return hand.choice([*MISREAD, *AWKWARD])

    pod = {
        "priorityClassName": name(),
        "runtimeClassName": name(),
        "nodeSelector": {"a": hand.choice(MISREAD)},
        "podAnnotations": {"a": text()},
        "podLabels": {"a": hand.choice(MISREAD)},
        "env": {"A": text()},
    }
    return {
        "image": {"repository": "registry.example/123", "tag": hand.choice(MISREAD), "pullSecrets": [{"name": name()}]},
        "model": {
            "name": text(),
            "path": f"/models/{text().replace(' ', '')}",
            "drafterPath": f"/models/{text().replace(' ', '')}",
            "existingClaim": name(),
            "tokenizerClaim": name(),
        },
        "gateway": pod,
        "workers": {**pod, "kernelCacheClaim": name(), "shmSize": "123", "target": {"log_level": text()}},
        "tls": {
            "secretName": name(),
            "clientCASecretName": name(),
            "internalSecretName": name(),
            "internalName": name(),
        },
        "auth": {"apiKeysSecretName": name(), "sessionSecretName": name()},
        "serviceAccount": {"name": name(), "annotations": {"a": text()}},
        "commonLabels": {"b": hand.choice(MISREAD)},
        "commonAnnotations": {"b": text()},
        "metrics": {"podMonitor": {"enabled": True, "labels": {"c": hand.choice(MISREAD)}}},
    }


def drawn() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(what it is made of, name of the release, values) without end, each unlike those before."""
    hand, before = random.Random(SEED), set[str]()
    while True:
        names = hand.sample(sorted(PARTS), hand.randint(1, 4))
        values = texts(hand) if hand.random() < 0.4 else BASE
        for name in names:
            values = merged(values, PARTS[name])
        whole = json.dumps(values, sort_keys=True)
        if whole not in before:
            yield "+".join(names), hand.choice(RELEASES), values
        before.add(whole)


@pytest.fixture(scope="module")
def sets() -> dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Release, values and documents of the sets that are accepted, by what they are made of."""
    found: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {}
    refused = 0
    for number, (made, release, values) in enumerate(drawn()):
        try:
            found[f"{number}-{made}"] = release, values, render(values, release)
        except HelmError as error:
            refused += 1
            assert re.search(r"- at '/[A-Za-z/]+': .*, want ", str(error)), f"{made}: {error}"
        if len(found) == SETS:
            assert refused < SETS, "most of what is drawn does not go together"
            return found
    raise AssertionError


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_set(
    version: str, sets: dict[str, Any], report_counts: Callable[[str, int], None]
) -> None:
    """As Helm renders it for that version; only device claims are newer than 1.30."""
    wrong, taken = {}, 0
    for made, (release, values, found) in sets.items():
        if "claims" in made and version < CLAIMS_SINCE:
            with pytest.raises(HelmError, match=rf"- at '/workers/resourceClaims': .*, want {CLAIMS_SINCE}"):
                render_at(version, values, release)
            continue
        taken += 1
        there = render_at(version, values, release) if "claims" in made else found
        wrong[made] = refusals(version, with_pods(there))
    assert {made: each for made, each in wrong.items() if each} == {}
    assert taken >= (SETS - 12 if version < CLAIMS_SINCE else SETS)
    report_counts(f"sets_{version}", taken)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_claims_depend_on_the_version(version: str, sets: dict[str, Any]) -> None:
    """Of the others every tenth is rendered again for it."""
    for release, values, found in [found for made, found in sets.items() if "claims" not in made][::10]:
        assert render_at(version, values, release) == found


@pytest.mark.parametrize("version", ["1.32", "1.33", "1.34", "1.37"])
def test_a_claim_s_template_is_of_the_version_that_a_cluster_serves(version: str) -> None:
    found = render_at(version, merged(BASE, VARIANTS["device-claims"]))
    assert refusals(version, found) == []
    assert "ResourceClaimTemplate" in {each["kind"] for each in found}


def test_a_claim_s_template_that_a_cluster_does_not_serve_is_refused() -> None:
    own = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "own"}}
    for given in (own, json.dumps(own)):
        values = merged(BASE, {"extraObjects": [given]})
        with pytest.raises(HelmError, match=r"- at '/extraObjects/0': resource.k8s.io/v1 on .*1\.33.*, want 1\.34"):
            render_at("1.33", values)
        assert any(each["metadata"]["name"] == "own" for each in render_at("1.34", values))


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value


NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def test_names_and_labels_are_what_kubernetes_allows(sets: dict[str, Any]) -> None:
    for made, (_, values, found) in sets.items():
        given = values.get("serviceAccount", {}).get("name")
        for each in found:
            metadata = each["metadata"]
            assert NAME.fullmatch(metadata["name"]) or metadata["name"] == given, made
            assert len(metadata["name"]) <= 63, made
            for value in metadata.get("labels", {}).values():
                assert isinstance(value, str) and len(value) <= 63 and LABEL.fullmatch(value), (made, value)
        names = [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in found]
        assert len(names) == len(set(names)), made


def test_texts_stay_what_they_are(sets: dict[str, Any]) -> None:
    """Whatever is given as a text arrives as the same text, alone or as the end of an argument."""
    seen = 0
    for made, (_, values, found) in sets.items():
        if "b" not in values.get("commonLabels", {}):  # which all that `texts` makes has, and no part
            continue
        seen += 1
        arguments = [a for pod in templates(found) for c in pod["spec"]["containers"] for a in c.get("args", ())]
        model = values["model"]["name"]
        served = f"--models={model}=" if values.get("models") else f"--model={model}"
        assert f"--model-name={model}" in arguments, made
        assert any(a.startswith(served) for a in arguments), made
        arrived = set(strings(found))
        for text in (values["auth"]["apiKeysSecretName"], values["gateway"]["priorityClassName"]):
            assert text in arrived, made
        for pod in templates(found):
            assert pod["metadata"]["annotations"]["b"] == values["commonAnnotations"]["b"], made
            assert pod["metadata"]["labels"]["b"] == values["commonLabels"]["b"], made
    assert seen > SETS // 8


def test_kubernetes_puts_no_variable_into_a_name() -> None:
    found = render(merged(BASE, {"model": {"name": "$(POD_IP)$(A)"}}))
    arguments = [a for pod in templates(found) for c in pod["spec"]["containers"] for a in c["args"]]
    assert {"--model=$$(POD_IP)$$(A)", "--model-name=$$(POD_IP)$$(A)", "--host=$(POD_IP)"} <= set(arguments)


def test_further_objects_are_templates_only_as_texts() -> None:
    found = {d["metadata"]["name"]: d for d in render(merged(BASE, PARTS["extra"])) if d["kind"] == "ConfigMap"}
    assert found["own"]["data"] == {"a": "{{ as it is }}"}
    assert "llm-own" in found


def test_the_sets_are_many_and_the_same_each_time(sets: dict[str, Any]) -> None:
    assert len(sets) == SETS
    again = {f"{number}-{made}" for number, (made, _, _) in zip(range(10), drawn(), strict=False)}
    assert len(again & sets.keys()) >= 3
    used = {part for made in sets for part in made.partition("-")[2].split("+")}
    assert len(used) >= len(PARTS) * 3 // 4
