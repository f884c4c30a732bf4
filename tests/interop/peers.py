"""Processes of an interoperability test: fake target, gateway, and a public gateway in front of it."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
PEERS = REPOSITORY / ".venv-interop"
START_S = 60.0
CONFIG = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 512,
    "max_position_embeddings": 4096,
}


@contextmanager
def running(command: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block."""
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | environment,
        cwd=REPOSITORY,
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(timeout=START_S)


@contextmanager
def service(*arguments: str) -> Iterator[Mapping[str, str]]:
    """One of our processes; yields the addresses that its first line states."""
    command = [sys.executable, "-m", *arguments]
    with running(command, PYTHONPATH=str(PEERS / "messages")) as started:
        assert started.stdout is not None
        yield json.loads(started.stdout.readline())


@contextmanager
def public_gateway(worker: str, folder: Path) -> Iterator[str]:
    """smg in front of a gRPC worker that serves the model `fake`; yields its base URL once it serves that."""
    if not (folder / "config.json").exists():
        (folder / "config.json").write_text(json.dumps(CONFIG))
    port, metrics = free_port(), free_port()
    command = [
        str(PEERS / "bin" / "smg"), "launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls",
        f"grpc://{worker}", "--backend", "vllm", "--model-path", str(folder), "--policy", "round_robin",
        "--prometheus-port", str(metrics),
    ]  # fmt: skip
    base = f"http://127.0.0.1:{port}"
    with running(command):
        until = time.monotonic() + START_S
        while "fake" not in fetch(f"{base}/v1/models"):
            assert time.monotonic() < until, "the public gateway does not start"
            time.sleep(0.3)
        yield base


def fetch(url: str) -> str:
    """The body at a URL, empty while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def post(url: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Status and JSON that a POST is answered with."""
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=START_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
