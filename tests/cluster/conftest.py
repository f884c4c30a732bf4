"""The API server that the tests of releases share; make test-cluster says where its programs are."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.server import Cluster, running
from tests.deploy.full.kubernetes import CUSTOM

PROGRAMS = ("etcd", "kube-apiserver")
GROUPS = {
    "BackendTLSPolicy": "gateway.networking.k8s.io/v1",
    "Certificate": "cert-manager.io/v1",
    "GRPCRoute": "gateway.networking.k8s.io/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "RayCluster": "ray.io/v1",
    "ScaledObject": "keda.sh/v1alpha1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
    "SecurityContextConstraints": "security.openshift.io/v1",
}


@pytest.fixture(scope="session")
def programs() -> Path:
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or ".").resolve()
    missing = [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        wanted = f"KUBEBUILDER_ASSETS, a folder with {' and '.join(PROGRAMS)}, such as setup-envtest prints"
        pytest.exit(f"test-cluster needs {wanted}", 1)
    return folder


@pytest.fixture(scope="session")
def cluster(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server that knows the custom kinds by name, and OpenShift's group not yet."""
    with running(programs, tmp_path_factory.mktemp("cluster")) as made:
        for kind in sorted(CUSTOM):
            made.define(kind, GROUPS[kind])
        yield made
