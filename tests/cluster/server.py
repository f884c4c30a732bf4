"""A Kubernetes API server with its etcd on this machine, from a folder such as setup-envtest makes."""

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_ports

TOKEN = "of-this-run-alone"
READY_S = 120.0


class Cluster:
    """What a client needs, and the calls that the tests make; `address` is https://host:port."""

    def __init__(self, address: str) -> None:
        """Asks nothing yet; the certificate is made by the server itself for this run."""
        self.address = address
        self._context = ssl._create_unverified_context()

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig, as YAML."""
        cluster = {"server": self.address, "insecure-skip-tls-verify": True}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )

    def ask(self, path: str, body: object = None, method: str = "") -> dict[str, Any]:
        """The answer to a call; a body makes it a POST.

        Raises:
            AssertionError: the server refused it; the message is what it said.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method or None)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._context) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from error

    def resources(self) -> dict[str, tuple[str, str, bool]]:
        """(path of its group, plural, whether it lies in a namespace) of every kind, by apiVersion/Kind."""
        groups = [version for group in self.ask("/apis")["groups"] for version in group["versions"]]
        places = {"v1": "/api/v1"} | {each["groupVersion"]: f"/apis/{each['groupVersion']}" for each in groups}
        return {
            f"{version}/{each['kind']}": (place, each["name"], each["namespaced"])
            for version, place in places.items()
            for each in self.ask(place)["resources"]
            if "/" not in each["name"]
        }

    def define(self, kind: str, api: str) -> None:
        """Makes a custom kind that takes any fields, and waits until it is served."""
        group, _, version = api.partition("/")
        plural = f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s"
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        spec = {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        }
        metadata = {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}}
        self.ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": metadata, "spec": spec})
        end = time.monotonic() + READY_S
        while f"{api}/{kind}" not in self._served(api):
            assert time.monotonic() < end, f"{kind} is not served"
            time.sleep(0.1)

    def _served(self, api: str) -> set[str]:
        try:
            return {f"{api}/{each['kind']}" for each in self.ask(f"/apis/{api}")["resources"]}
        except AssertionError:
            return set()

    def namespace(self, name: str, **labels: str) -> str:
        """Makes a namespace, with the account that a controller would make; returns its name."""
        self.ask("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        self.ask(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        return name

    def everything(self, namespace: str) -> list[str]:
        """Kind and name of all that lies in a namespace, events and the account of every namespace left out."""
        found = {
            f"{plural}/{one['metadata']['name']}"
            for place, plural, inside in self.resources().values()
            if inside and plural not in ("events", "bindings") and not plural.endswith("reviews")
            for one in self.ask(f"{place}/namespaces/{namespace}/{plural}")["items"]
        }
        return sorted(found - {"serviceaccounts/default", "configmaps/kube-root-ca.crt"})


@contextmanager
def running(programs: Path, folder: Path) -> Iterator[Cluster]:
    """Etcd and kube-apiserver of a folder, both gone afterwards."""
    client, peer, secure = free_ports(3)
    key, tokens = folder / "accounts.key", folder / "tokens"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.write_text(f"{TOKEN},admin,admin,system:masters\n")
    etcd = [f"--data-dir={folder / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{client}"]
    etcd += [f"--advertise-client-urls=http://127.0.0.1:{client}", f"--listen-peer-urls=http://127.0.0.1:{peer}"]
    server = [f"--etcd-servers=http://127.0.0.1:{client}", f"--secure-port={secure}", "--bind-address=127.0.0.1"]
    server += [f"--cert-dir={folder / 'certificates'}", f"--token-auth-file={tokens}", "--authorization-mode=RBAC"]
    server += [f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"]
    server += ["--service-account-issuer=https://here", "--service-cluster-ip-range=10.0.0.0/16,fd00::/112"]
    # No controller makes accounts here, so none are looked for; node ports are free in any case.
    server += ["--disable-admission-plugins=ServiceAccount"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name, flags in (("etcd", etcd), ("kube-apiserver", server)):
            with (folder / f"{name}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen([programs / name, *flags], stdout=log, stderr=log, env=_environment())
                )
        cluster = Cluster(f"https://127.0.0.1:{secure}")
        _wait(cluster, processes, folder)
        yield cluster
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "ETCD_UNSUPPORTED_ARCH": ""}


def _wait(cluster: Cluster, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    end = time.monotonic() + READY_S
    while True:
        try:
            cluster.ask("/api/v1/namespaces/default")
            return
        except (OSError, AssertionError):
            ended = [process for process in processes if process.poll() is not None]
            if ended or time.monotonic() > end:
                logs = "\n".join((folder / f"{name}.log").read_text()[-2000:] for name in ("etcd", "kube-apiserver"))
                raise AssertionError(f"the API server does not answer\n{logs}") from None
            time.sleep(0.3)
