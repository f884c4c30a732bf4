"""The chart with the real Helm SDK: lint, a matrix of values, Kubernetes schemas, pod security."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import Chart, HelmError, lint

from tests.deploy.test_drift import BAD, CHART, ROOT, VALUES

BASE: dict[str, Any] = {"image": {"repository": "registry.example/paceline"}, "model": {"existingClaim": "models"}}
VERSIONS = ("1.30.0", "1.33.0", "1.36.0")
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "dflash": {"model": {"drafterPath": "/models/drafter"}},
    "download": {"model": {"existingClaim": "", "download": {"enabled": True, "image": "i", "command": ["c"]}}},
    "cpu": {"workers": {"gpusPerPod": 0}},
    "four-gpus": {"workers": {"gpusPerPod": 4, "replicas": 3}},
    "mps": {"workers": {"mps": True}},
    "autoscaling": {"gateway": {"autoscaling": {"enabled": True}}},
    "client-tls": {"tls": {"secretName": "tls"}},
    "client-mtls": {"tls": {"secretName": "tls", "clientCASecretName": "ca"}},
    "internal-mtls": {"tls": {"internalSecretName": "internal"}},
    "cert-manager": {"tls": {"certManager": {"enabled": True, "issuerRef": {"name": "letsencrypt"}}}},
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


def pods(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield document["spec"]["template"]["spec"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_strict_lint(variant: str) -> None:
    assert lint(CHART, values=merged(BASE, VARIANTS[variant]), strict=True)["errors"] == []


@pytest.mark.parametrize(("variant", "version"), list(itertools.product(VARIANTS, VERSIONS)))
def test_kubernetes_accepts(
    variant: str, version: str, tmp_path: Path, report_counts: Callable[[str, int], None]
) -> None:
    documents = render(merged(BASE, VARIANTS[variant]))
    path = tmp_path / "out.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    tool = Path(sys.executable).parent / "kubernetes-validate"
    done = subprocess.run([tool, "--strict", "-k", version, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report_counts("manifests", len(documents))


@pytest.mark.parametrize("variant", VARIANTS)
def test_pods_are_restricted_and_probed(variant: str) -> None:
    for pod in pods(render(merged(BASE, VARIANTS[variant]))):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
            assert "/tmp" in writable
        (container,) = pod["containers"]
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()
        assert container["resources"]["requests"]
        mounts = {mount["name"] for c in pod["containers"] for mount in c["volumeMounts"]}
        assert mounts <= {volume["name"] for volume in pod["volumes"]}


def test_selectors_meet_pods() -> None:
    documents = render(BASE)
    labels = {
        d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"]
        for d in documents
        if d["kind"] in ("Deployment", "StatefulSet")
    }
    for document in documents:
        if document["kind"] == "Service":
            selector = document["spec"]["selector"].items()
            assert sum(selector <= pod.items() for pod in labels.values()) == 1, document["metadata"]["name"]


def test_repository_is_required_and_the_message_tells_how_to_build() -> None:
    with pytest.raises(HelmError, match="docker build"):
        render({"model": {"existingClaim": "models"}})


@pytest.mark.parametrize(("path", "value"), BAD)
def test_helm_refuses_bad_values(path: str, value: Any) -> None:
    values = merged(json.loads(json.dumps(VALUES)), BASE)
    *parents, last = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[last] = value
    with pytest.raises(HelmError):
        render(values)


def test_dashboards_are_what_the_code_builds() -> None:
    done = subprocess.run([sys.executable, "-m", "deploy.grafana.build", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_dockerfiles_are_clean(name: str) -> None:
    tool = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [tool, ROOT / f"deploy/docker/{name}.Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_shell_scripts_are_clean() -> None:
    scripts = [*ROOT.glob("requirements/*.sh"), ROOT / ".ci/run"]
    tool = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([tool, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
