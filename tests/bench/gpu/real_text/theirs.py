"""vLLM's side: a process of its own for each K, out of a folder that is no part of this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from services.common.model.families import read_target_spec
from services.common.model.files.formats import open_checkpoint
from services.common.model.weights.weights import model_shapes
from tests.bench.gpu.race.theirs import QUIET, PeerOptions
from tests.bench.gpu.real_text import worker
from tests.bench.gpu.real_text.loads import Load, Row, Told, row_of
from tests.bench.nodes_offline import Pair

STARTS_S, RUNS_S = 600.0, 200.0
KV_BYTES = 8 << 30
"""Of keys and values of a vLLM: 350,000 tokens of SmolLM2."""


class Vllm:
    """A process of vLLM with so many drafts. It starts at once and measures when it is asked for rows."""

    def __init__(
        self, folder: Path, pair: Pair, loads: Sequence[Load], k: int, options: PeerOptions, ends: Sequence[int]
    ) -> None:
        """`folder` is empty and its own; `pair` has a target of the layout that vLLM reads."""
        self._k, self._loads = k, loads
        self._answer, self._ready, self._go = (folder / name for name in ("answer.json", "ready", "go"))
        told = order_of(pair, loads, k, options, ends) | {"ready": str(self._ready), "go": str(self._go)}
        order = folder / "order.json"
        order.write_text(json.dumps(told))
        environment = {**QUIET, **os.environ, "PYTHONPATH": str(options.folder)}
        command = [options.python, str(worker.__file__), str(order), str(self._answer)]
        self._process = subprocess.Popen(command, env=environment, stdout=sys.stderr)

    def wait_ready(self) -> None:
        """Returns once it can measure; says so where it cannot."""
        ends = time.monotonic() + STARTS_S
        while not self._ready.exists() and self._process.poll() is None and time.monotonic() < ends:
            time.sleep(worker.POLL_S)
        if not self._ready.exists():
            print(f"vllm, K = {self._k}: it did not start", file=sys.stderr)

    def rows(self) -> list[Row]:
        """Measure every load; a limit of time keeps what was measured before it."""
        self._go.touch()
        try:
            if self._process.wait(RUNS_S):
                print(f"vllm, K = {self._k}: it ended with {self._process.returncode}", file=sys.stderr)
        except subprocess.TimeoutExpired as error:
            print(f"vllm, K = {self._k}: {error}", file=sys.stderr)
        measured = json.loads(self._answer.read_text())["measured"] if self._answer.exists() else []
        pairs = zip(self._loads, measured, strict=False)
        return [row_of("vllm", self._k, load, [Told(**one) for one in told]) for load, told in pairs]

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()


@contextmanager
def started(
    pair: Pair, loads: Sequence[Load], drafts: Sequence[int], options: PeerOptions, ends: Sequence[int]
) -> Iterator[list[Vllm]]:
    """Start one vLLM for each number of drafts, all side by side; stop them in the end."""
    with tempfile.TemporaryDirectory(prefix="vl") as name, ExitStack() as stack:
        plain = Path(name) / "target"
        write_plain(pair.target, plain)
        peers = []
        for k in drafts:
            folder = Path(name) / str(k)
            folder.mkdir()
            peers.append(Vllm(folder, replace(pair, target=plain), loads, k, options, ends))
            stack.callback(peers[-1].stop)
        yield peers


def order_of(pair: Pair, loads: Sequence[Load], k: int, options: PeerOptions, ends: Sequence[int]) -> dict[str, Any]:
    """Return what a process of vLLM is told."""
    return {
        "target": str(pair.target),
        "drafter": str(pair.drafter),
        "k": k,
        "prompts": [list(one) for one in pair.prompts],
        "ends": list(ends),
        "slots": max(load.streams for load in loads),
        "context": max(map(len, pair.prompts)) + max(load.tokens for load in loads) + 64,
        "memory_fraction": options.memory_fraction,
        "kv_bytes": KV_BYTES,
        "loads": [asdict(load) | {"count": load.count} for load in loads],
    }


def write_plain(folder: Path, plain: Path) -> None:
    """Write the numbers that paceline serves from a folder, in bfloat16, as one file of the layout that all read."""
    plain.mkdir()
    for path in folder.glob("*.json"):
        (plain / path.name).write_bytes(path.read_bytes())
    source = open_checkpoint(folder)
    shapes = model_shapes(read_target_spec(folder))
    tensors = {name: source.read(name, shape, torch.bfloat16) for name, shape in shapes.items()}
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
