"""The chart rendered by the real Helm SDK, with the sets of values that the tests go through."""

from collections.abc import Iterator
from typing import Any

import yaml
from helm_python import Chart

from tests.deploy.test_drift import CHART

BASE: dict[str, Any] = {"image": {"repository": "registry.example/paceline"}, "model": {"existingClaim": "models"}}
VERSIONS = ("1.30.0", "1.33.0", "1.36.0")
RAYCLUSTER: dict[str, Any] = {"mode": "raycluster", "replicas": 2, "raycluster": {"tokenSecretName": "ray"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "dflash": {"model": {"drafterPath": "/models/drafter"}},
    "download": {"model": {"existingClaim": "", "download": {"enabled": True, "image": "i", "command": ["c"]}}},
    "cpu": {"workers": {"gpusPerPod": 0}},
    "four-gpus": {"workers": {"gpusPerPod": 4, "replicas": 3}},
    "mps": {"workers": {"mps": True}},
    "placed": {"workers": {"nodeSelector": {"gpu": "h200"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    "raycluster": {"workers": RAYCLUSTER},
    "raycluster-cpu": {"workers": {**RAYCLUSTER, "gpusPerPod": 0}},
    "raycluster-whole": {
        "workers": {**RAYCLUSTER, "gpusPerPod": 4},
        "model": {"existingClaim": "", "download": {"enabled": True, "image": "i", "command": ["c"]}},
        "tls": {"internalSecretName": "internal"},
        "metrics": {"podMonitor": {"enabled": True}},
    },
    "autoscaling": {"gateway": {"autoscaling": {"enabled": True}}},
    "client-tls": {"tls": {"secretName": "tls"}},
    "client-mtls": {"tls": {"secretName": "tls", "clientCASecretName": "ca"}},
    "internal-mtls": {"tls": {"internalSecretName": "internal"}},
    "cert-manager": {
        "tls": {"certManager": {"enabled": True, "internal": True, "issuerRef": {"name": "letsencrypt"}}},
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
}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def render(values: dict[str, Any]) -> list[dict[str, Any]]:
    with Chart.load(CHART) as chart:
        files = chart.render(values=values, name="llm", namespace="inference")
    texts = (text for name, text in files.items() if not name.endswith(".txt"))
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def variant(name: str) -> list[dict[str, Any]]:
    return render(merged(BASE, VARIANTS[name]))


def templates(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every pod template, those of a RayCluster included."""
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield spec["template"]
        if document["kind"] == "RayCluster":
            yield spec["headGroupSpec"]["template"]
            yield from (group["template"] for group in spec["workerGroupSpecs"])
