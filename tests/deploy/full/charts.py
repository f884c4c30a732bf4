"""The chart rendered by the real Helm SDK, with the sets of values that the tests go through."""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart, Config, _native

from tests.deploy.test_drift import CHART
from tests.deploy.test_values import merged

BASE: dict[str, Any] = {"image": {"repository": "registry.example/paceline"}, "model": {"existingClaim": "models"}}
NOTES = "NOTES.txt"
NAMESPACE = "inference"
VERSIONS = ("1.30", "1.33", "1.36")
RAYCLUSTER: dict[str, Any] = {"mode": "raycluster", "replicas": 2, "raycluster": {"tokenSecretName": "ray"}}
DOWNLOAD = {"enabled": True, "image": "i", "command": ["c"], "gatewayCommand": ["g"]}
ISSUERS = {"issuerRef": {"name": "letsencrypt"}, "internalIssuerRef": {"name": "private-ca", "kind": "Issuer"}}
AUTOSCALING = {"enabled": True, "prometheusAddress": "http://prometheus.monitoring.svc:9090"}
ROUTES: dict[str, Any] = {
    "gateway": {
        "httpPort": 8000,
        "grpcRoute": {
            "enabled": True,
            "annotations": {"example.com/team": "a"},
            "parentRefs": [{"name": "public", "namespace": "infra", "sectionName": "grpc"}],
            "hostnames": ["grpc.example.com"],
        },
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["llm.example.com"]},
    }
}
POOL: dict[str, Any] = {"inferencePool": {"enabled": True, "endpointPicker": {"serviceName": "picker"}}}
MODELS: dict[str, Any] = {
    "model": {"name": "large", "path": "/models/large", "drafterPath": "/models/drafter"},
    "workers": {"gpusPerPod": 2, "target": {"widths": [1, 4]}, "autoscaling": AUTOSCALING},
    "models": [
        {
            "id": "small",
            "name": "small",
            "path": "/models/small",
            "drafterPath": "",
            "workers": {"gpusPerPod": 1, "slots": 128},
        },
        {
            "id": "mid",
            "name": "mid",
            "path": "/models/mid",
            "workers": {"replicas": 3, "autoscaling": {"enabled": False}},
        },
    ],
    "metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": False}},
    "networkPolicy": {"egress": {"enabled": True}},
}
INGRESS = {"enabled": True, "hosts": ["llm.example.com"], "annotations": {"a": "b"}}
PLACED: dict[str, Any] = {
    "podAnnotations": {"example.com/team": "a"},
    "podLabels": {"team": "a"},
    "runtimeClassName": "nvidia",
    "priorityClassName": "serving",
    "podSpec": {"schedulerName": "volcano", "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["hub.example"]}]},
    "extraEnv": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "envFrom": [{"secretRef": {"name": "otlp"}}],
    "extraVolumes": [{"name": "certificates", "configMap": {"name": "c"}}],
    "extraVolumeMounts": [{"name": "certificates", "mountPath": "/certificates"}],
}


def profile(path: Path) -> dict[str, Any]:
    """A profile, with what it leaves to its user."""
    given: dict[str, dict[str, Any]] = {
        "secure": {"tls": {"certManager": ISSUERS}},
        "download": {"model": {"existingClaim": ""}},
    }
    return merged(yaml.safe_load(path.read_text()), given.get(path.stem, {}))


VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "dflash": {"model": {"drafterPath": "/models/drafter"}},
    "fetched": {"model": {"existingClaim": "", "download": DOWNLOAD}},
    "cpu": {"workers": {"gpusPerPod": 0}},
    "four-gpus": {"workers": {"gpusPerPod": 4, "replicas": 3}},
    "mps": {"workers": {"mps": True}},
    "settings": {
        "workers": {
            "target": {"widths": [1, 4], "memory_bytes": 80_000_000_000, "prefix_cache": False, "log_level": "debug"},
            "drafter": {"ngram_max": 6},
        }
    },
    "raycluster-settings": {"workers": {**RAYCLUSTER, "target": {"preemption": True, "stall_s": 2.5}}},
    "placed": {"workers": {"nodeSelector": {"gpu": "h200"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    "placed-anywhere": {"gateway": PLACED, "workers": {**PLACED, "kernelCacheClaim": "kernels"}},
    "raycluster-placed": {"workers": {**RAYCLUSTER, **PLACED, "kernelCacheClaim": "kernels"}},
    "egress": {"networkPolicy": {"egress": {"enabled": True, "extra": [{"ports": [{"port": 4317}]}]}}},
    "raycluster-egress": {"workers": RAYCLUSTER, "networkPolicy": {"egress": {"enabled": True}}},
    "mig": {"workers": {"gpuResourceName": "nvidia.com/mig-3g.40gb"}},
    "tokenizer-claim": {"model": {"tokenizerClaim": "tokenizer"}},
    **{path.stem: profile(path) for path in sorted((CHART / "profiles").glob("*.yaml"))},
    "raycluster": {"workers": RAYCLUSTER},
    "raycluster-cpu": {"workers": {**RAYCLUSTER, "gpusPerPod": 0}},
    "raycluster-whole": {
        "workers": {**RAYCLUSTER, "gpusPerPod": 4},
        "model": {"existingClaim": "", "download": DOWNLOAD},
        "tls": {"internalSecretName": "internal"},
        "metrics": {"podMonitor": {"enabled": True}},
    },
    "worker-autoscaling": {"workers": {"gpusPerPod": 2, "autoscaling": AUTOSCALING}},
    "service-monitor": {"workers": {"gpusPerPod": 2}, "metrics": {"serviceMonitor": {"enabled": True}}},
    "raycluster-service-monitor": {"workers": RAYCLUSTER, "metrics": {"serviceMonitor": {"enabled": True}}},
    "autoscaling": {"gateway": {"autoscaling": {"enabled": True}}},
    "client-tls": {"tls": {"secretName": "tls"}},
    "client-mtls": {"tls": {"secretName": "tls", "clientCASecretName": "ca"}},
    "internal-mtls": {"tls": {"internalSecretName": "internal"}},
    "cert-manager": {
        "tls": {"certManager": {"enabled": True, "internal": True, **ISSUERS}},
    },
    "keys": {"auth": {"apiKeysSecretName": "keys"}},
    "monitoring": {
        "metrics": {
            "podMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True},
            "dashboards": {"enabled": True},
        }
    },
    "minimal": {
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "serviceAccount": {"create": False},
        "topologySpread": {"enabled": False},
    },
    "load-balancer": {"gateway": {"service": {"type": "LoadBalancer", "annotations": {"a": "b"}}}},
    "http": {"gateway": {"httpPort": 8000}},
    "models": MODELS,
    "inference-pool": POOL,
    "inference-pool-whole": merged(
        POOL,
        {
            "inferencePool": {"from": [{"podSelector": {}}], "endpointPicker": {"failureMode": "FailOpen"}},
            "workers": {"gpusPerPod": 4, "pairsPerGpu": 2},
            "tls": {"secretName": "tls", "clientCASecretName": "ca", "internalSecretName": "internal"},
            "auth": {"apiKeysSecretName": "keys"},
            "networkPolicy": {"egress": {"enabled": True}},
            "metrics": {"podMonitor": {"enabled": True}},
        },
    ),
    "routes": ROUTES,
    "routes-tls": merged(ROUTES, {"gateway": {"routeCAConfigMapName": "ca"}, "tls": {"secretName": "tls"}}),
    "ingress": {"gateway": {"httpPort": 8000, "ingress": INGRESS}},
    "ingress-grpc": {"gateway": {"ingress": {**INGRESS, "backend": "grpc", "className": "nginx"}}},
    "public-issuer": {
        "gateway": {"httpPort": 8000, "ingress": {**INGRESS, "tlsSecretName": "public"}},
        "tls": {"certManager": {"enabled": True, **ISSUERS, "serviceNames": False, "dnsNames": ["llm.example.com"]}},
    },
}


class AsKubernetes(yaml.CSafeLoader):
    """Reads scalars as Kubernetes does: 1e3 and 0o17 are numbers there."""


AsKubernetes.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), [*"-+0123456789"]
)
AsKubernetes.add_implicit_resolver("tag:yaml.org,2002:int", re.compile("^0o[0-7]+$"), ["0"])


def rendered(values: dict[str, Any], name: str = "llm") -> dict[str, str]:
    """The text of every template, by its path."""
    with Chart.load(CHART) as chart:
        return dict(chart.render(values=values, name=name, namespace=NAMESPACE))


def notes(values: dict[str, Any]) -> str:
    """What an installation prints."""
    return next(text for name, text in rendered(values).items() if name.endswith(NOTES))


def render(values: dict[str, Any], name: str = "llm") -> list[dict[str, Any]]:
    """Every document of a release, without a cluster that could be asked."""
    return documents(rendered(values, name))


def render_in(
    address: str, values: dict[str, Any], *, chart: Path = CHART, upgrade: bool = False
) -> list[dict[str, Any]]:
    """Every document of a release, as Helm renders it with a cluster."""
    return documents(rendered_in(address, values, chart=chart, upgrade=upgrade))


def rendered_in(address: str, values: dict[str, Any], *, chart: Path = CHART, upgrade: bool = False) -> dict[str, str]:
    """The text of every template, by its path, as Helm renders it with a cluster."""
    with Chart.load(chart) as loaded, Config(kube_apiserver=address, namespace=NAMESPACE) as cluster:
        return dict(cluster.render(loaded, values, name="llm", namespace=NAMESPACE, is_upgrade=upgrade))


def render_at(version: str, values: dict[str, Any], name: str = "llm") -> list[dict[str, Any]]:
    """Every document of a release, as `helm template --kube-version` has it; the SDK has no parameter for that."""
    options = {"name": name, "namespace": NAMESPACE, "kube_version": f"v{version}.0"}
    with Chart.load(CHART) as chart:
        found = _native.call_string("helm_render", chart._raw(), json.dumps(values), json.dumps(options))
    return documents(json.loads(found))


def documents(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """What the texts of templates hold."""
    manifests = (text for name, text in texts.items() if not name.endswith(NOTES))
    return [each for text in manifests for each in yaml.load_all(text, AsKubernetes) if each]


def variant(name: str) -> list[dict[str, Any]]:
    """Every document of a variant, the caller's own to change; Helm renders each once in a process."""
    return deepcopy(_variant(name))


@cache
def _variant(name: str) -> list[dict[str, Any]]:
    return render(merged(BASE, VARIANTS[name]))


def templates(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every pod template, those of a RayCluster included."""
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "Deployment":
            yield spec["template"]
        if document["kind"] == "RayCluster":
            yield spec["headGroupSpec"]["template"]
            yield from (group["template"] for group in spec["workerGroupSpecs"])
