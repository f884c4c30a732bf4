"""The API server that the tests of releases share; make test-cluster says where its programs are."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.server import Cluster, running
from tests.deploy.full.charts import VARIANTS, variant
from tests.deploy.full.kubernetes import CUSTOM

PROGRAMS = ("etcd", "kube-apiserver")


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
    """An API server that knows the custom kinds that the chart renders by name, and OpenShift's group not yet."""
    every = [document for name in VARIANTS for document in variant(name)]
    groups = {document["kind"]: document["apiVersion"] for document in every if document["kind"] in CUSTOM}
    assert groups.keys() == CUSTOM
    with running(programs, tmp_path_factory.mktemp("cluster")) as made:
        for kind, group in sorted(groups.items()):
            made.define(kind, group)
        yield made
