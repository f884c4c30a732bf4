"""vLLM's side: a process of its own for each K, out of a folder that is no part of this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from services.common.model.families import read_target_spec
from services.common.model.files.formats import open_checkpoint
from services.common.model.weights.weights import model_shapes
from tests.bench.gpu.race.theirs import QUIET, VllmOptions
from tests.bench.gpu.real_text import worker
from tests.bench.gpu.real_text.loads import Load, Row, Told, row_of
from tests.bench.nodes_offline import Pair

STARTS_AND_RUNS_S = 400.0


def vllm_rows(pair: Pair, loads: Sequence[Load], k: int, options: VllmOptions, ends: Sequence[int]) -> list[Row]:
    """Start vLLM with so many drafts and measure every load; a limit of time keeps what was measured before it."""
    with tempfile.TemporaryDirectory(prefix="vl") as name:
        order, answer, target = (Path(name) / part for part in ("order.json", "answer.json", "target"))
        write_plain(pair.target, target)
        order.write_text(json.dumps(order_of(replace(pair, target=target), loads, k, options, ends)))
        environment = {**QUIET, **os.environ, "PYTHONPATH": str(options.folder)}
        command = [options.python, str(worker.__file__), str(order), str(answer)]
        try:
            subprocess.run(command, env=environment, check=True, stdout=sys.stderr, timeout=STARTS_AND_RUNS_S)
        except subprocess.SubprocessError as error:
            print(f"vllm, K = {k}: {error}", file=sys.stderr)
        measured = json.loads(answer.read_text())["measured"] if answer.exists() else []
    pairs = zip(loads, measured, strict=False)
    return [row_of("vllm", k, load, [Told(**one) for one in told]) for load, told in pairs]


def order_of(pair: Pair, loads: Sequence[Load], k: int, options: VllmOptions, ends: Sequence[int]) -> dict[str, Any]:
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
