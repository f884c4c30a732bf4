"""Both servers, each behind its own HTTP front, with the same shapes, random weights and rates of acceptance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.stack import ServiceProcess
from tests.bench.gpu.gateway import write_whole_tokenizer
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.race.theirs import QUIET, PeerOptions
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import rates_of
from tests.support.ports import free_port
from tests.support.tiny_checkpoints import write_configs

SCHEDULE, MODEL = "P65", "raced"
READY_S = 400.0


@dataclass(frozen=True)
class Server:
    """What a client needs; `name` is paceline, or vLLM's with its K. `version` is a peer's."""

    name: str
    address: str
    version: str = ""


@contextmanager
def paceline(settings: RigSettings, options: PairOptions) -> Iterator[Server]:
    """A pair and a gateway, ready."""
    with ExitStack() as stack:
        environment = stack.enter_context(Mps(settings.device == "cuda"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pl")))
        named = ("--model-name", MODEL)
        served = replace(options, environment=environment, flags=(*options.flags, *named), drafter_flags=named)
        pair = stack.enter_context(ServedPair(settings, folder, served))
        pair.switch(SCHEDULE)
        write_whole_tokenizer(pair.pair.target, settings.shape.vocab)
        command = ["services.gateway", "--targets", pair.address, "--tokenizer", str(pair.pair.target)]
        command += ["--http", "127.0.0.1:0", "--max-queued-tokens", "1000000"]
        gateway = ServiceProcess("gateway", command, folder, {})
        stack.callback(gateway.stop)
        yield Server("paceline", gateway.bound(60.0)["http"])


@contextmanager
def vllm(settings: RigSettings, drafts: Sequence[int], options: PeerOptions, kv_bytes: int) -> Iterator[list[Server]]:
    """vLLM's servers, one for each number of drafts; they start side by side and are ready.

    Raises:
        TimeoutError: one was not ready in READY_S.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vl")))
        models = write_configs(folder, settings.shape, settings.family, settings.changes)
        write_whole_tokenizer(models.target, settings.shape.vocab)
        servers = []
        for k in drafts:
            port = free_port()
            command = [options.python, "-m", "vllm.entrypoints.openai.api_server", "--port", str(port)]
            command += vllm_flags(settings, str(models.target), str(models.drafter), k, kv_bytes)
            environment = {**QUIET, **os.environ, "PYTHONPATH": str(options.folder)}
            process = subprocess.Popen(command, env=environment, stdout=sys.stderr, start_new_session=True)
            stack.callback(_end, process)
            servers.append((Server(f"vllm K={k}", f"127.0.0.1:{port}"), process))
        yield [_ready(server, process) for server, process in servers]


def vllm_flags(settings: RigSettings, target: str, drafter: str, k: int, kv_bytes: int) -> list[str]:
    """Return vLLM's own defaults but for what a race fixes: shapes, places, and memory that others leave it."""
    flags = ["--host", "127.0.0.1", "--model", target, "--served-model-name", MODEL, "--load-format", "dummy"]
    flags += ["--dtype", "bfloat16", "--max-model-len", str(settings.context_limit)]
    flags += ["--max-num-seqs", str(settings.slots), "--kv-cache-memory-bytes", str(kv_bytes)]
    flags += ["--gpu-memory-utilization", "0.2"]  # of which no more is asked than that it is free
    if not k:
        return flags
    rates = [*rates_of(SCHEDULE, settings.widths[-1]), *[0.0] * k][:k]
    speculation = {"method": "dflash", "model": drafter, "num_speculative_tokens": k}
    speculation |= {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates}
    return [*flags, "--speculative-config", json.dumps(speculation)]


def _ready(server: Server, process: subprocess.Popen[bytes]) -> Server:
    """The server once it answers, with its version."""
    ends = time.monotonic() + READY_S
    while time.monotonic() < ends and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{server.address}/version", timeout=2) as answer:
                return replace(server, version=json.loads(answer.read())["version"])
        except OSError:
            time.sleep(0.5)
    raise TimeoutError(f"{server.name} is not ready")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and what it started."""
    for signal_ in (15, 9):
        try:
            os.killpg(process.pid, signal_)
            process.wait(20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
