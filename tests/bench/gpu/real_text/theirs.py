"""vLLM's side: a process of its own for each K, out of a folder that is no part of this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.gpu.race.theirs import QUIET, VllmOptions
from tests.bench.gpu.real_text import worker
from tests.bench.gpu.real_text.loads import Load, Row, Told, row_of
from tests.bench.nodes_offline import Pair

STARTS_AND_RUNS_S = 400.0


def vllm_rows(pair: Pair, loads: Sequence[Load], k: int, options: VllmOptions, ends: Sequence[int]) -> list[Row]:
    """Start vLLM with so many drafts and measure every load; a limit of time keeps what was measured before it."""
    with tempfile.TemporaryDirectory(prefix="vl") as name:
        order, answer = Path(name) / "order.json", Path(name) / "answer.json"
        order.write_text(json.dumps(order_of(pair, loads, k, options, ends)))
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
