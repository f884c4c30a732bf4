"""The part of a Kubernetes API server that Helm's lookup asks: which kinds there are, and objects by name."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GROUP = "apps/v1"
KINDS = {"deployments": "Deployment", "statefulsets": "StatefulSet"}
CORE = {"secrets": "Secret", "serviceaccounts": "ServiceAccount", "namespaces": "Namespace"}
DEFAULT_ACCOUNT = {
    "serviceaccounts/default": {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
}
"""What every namespace of a real cluster has."""


@contextmanager
def serving(objects: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The address of a server that holds these objects, by path such as deployments/llm-gateway."""
    answers = {**_discovery(), **{_place(path): each for path, each in objects.items()}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            body = json.dumps(
                found or {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            ).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10.0)


def _place(path: str) -> str:
    kind = path.partition("/")[0]
    if kind == "namespaces":
        return f"/api/v1/{path}"
    return f"{'/api/v1' if kind in CORE else f'/apis/{GROUP}'}/namespaces/inference/{path}"


def _discovery() -> dict[str, dict[str, Any]]:
    kinds = [
        {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
        for name, kind in KINDS.items()
    ]
    core = [
        {"name": name, "singularName": "", "namespaced": kind != "Namespace", "kind": kind, "verbs": ["get"]}
        for name, kind in CORE.items()
    ]
    version = {"groupVersion": GROUP, "version": "v1"}
    groups = [{"name": "apps", "versions": [version], "preferredVersion": version}]
    return {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": core},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        f"/apis/{GROUP}": {"kind": "APIResourceList", "groupVersion": GROUP, "resources": kinds},
    }


def workload(kind: str, name: str, replicas: int) -> dict[str, Any]:
    """An object with its number of pods."""
    return {
        "apiVersion": GROUP,
        "kind": kind,
        "metadata": {"name": name, "namespace": "inference"},
        "spec": {"replicas": replicas},
    }


def secret(name: str, held: str) -> dict[str, Any]:
    """A Secret as a cluster has it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "inference"},
        "data": {"secret": base64.b64encode(held.encode()).decode()},
    }
