"""Services on addresses of IPv6: found and reached there, and on IPv4 too where they listen on all addresses."""

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.stack import EMBEDDED, ServiceProcess
from paceline import Client, Options

READY_S = 300.0
BIND = "[::]:0"
LISTENERS = ("grpc", "http", "health", "metrics")


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses of a gateway before one pair, as a release with bindAddress "::" has them."""
    folder = tmp_path_factory.mktemp("v6")
    both = [f"--health={BIND}", f"--metrics={BIND}"]
    pair = [f"--model={EMBEDDED}/target", f"--drafter={EMBEDDED}/drafter", "--placement=cpu", "--adaptive=false"]
    where = ["--host=::1", f"--listen={BIND}", "--insecure=true", f"--run-dir=/tmp/pl6-{os.getpid()}"]
    with ExitStack() as stack:
        worker = ServiceProcess("worker", ["deploy.cluster", *pair, *where, *both], folder, {})
        stack.callback(worker.stop, 40.0)
        fleet = worker.bound(READY_S)["grpc"].replace("[::]", "localhost")
        edge = [f"--tokenizer={EMBEDDED}/target", f"--watch-dns={fleet}", f"--grpc={BIND}", f"--http={BIND}"]
        gateway = ServiceProcess("gateway", ["services.gateway", *edge, "--wait-target-s=120", *both], folder, {})
        stack.callback(gateway.stop, 40.0)
        yield gateway.bound(READY_S)


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1"])
def test_every_listener_takes_both_families(bound: dict[str, str], host: str) -> None:
    at = {name: address.replace("[::]", host) for name, address in bound.items() if name in LISTENERS}
    with Client(at["grpc"]) as client:
        assert len(client.generate("def add(a, b):\n", Options(max_tokens=8, ignore_eos=True)).tokens) == 8
    with urllib.request.urlopen(f"http://{at['http']}/v1/models", timeout=30) as answer:
        assert json.load(answer)["data"]
    with urllib.request.urlopen(f"http://{at['metrics']}/metrics", timeout=30) as answer:
        assert b"paceline_gateway_ready_targets" in answer.read()
    with grpc.insecure_channel(at["health"]) as channel:
        found = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
    assert found.status == health_pb2.HealthCheckResponse.SERVING
