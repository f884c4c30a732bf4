"""A hybrid of Qwen3.5-27B's shape: loads, serves rounds of two widths, captures nothing then, and fits its plan."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from services.target.build_device import Worker
from tests.bench.gpu.exact.loads import LoadSizes
from tests.bench.gpu.exact.rounds import Comparison, Plan
from tests.bench.gpu.exact.rounds_rig import Cell, RigShape, build
from tests.bench.gpu.hybrid.rounds import FAMILY
from tests.bench.gpu.hybrid.rounds import TINY as TINY_PLAN
from tests.bench.gpu.shapes import DELTA_27B, QWEN3_5_27B

Row = dict[str, Any]
MIB, MODULE = 1 << 20, "tests.bench.gpu.hybrid"
FULL = Plan(
    RigShape(QWEN3_5_27B, "cuda", "bfloat16", 8, (1, 16), (2048,), 3072, FAMILY, DELTA_27B),
    LoadSizes(48, ((1, 40), (200, 800), (1500, 2600))),
    {8: 8},
    (2048,),
    kv_requests=2,
    kv_tokens=100,
)
CELLS = (Cell(16, 8, 2048), Cell(16, 8, 2048, hit=True, ahead=True))
PLANNED = (0.98, 1.02)


def large_rows(tiny: bool, exact: str) -> Iterator[Row]:
    """Starts a process that serves; what it holds is what its end gives back."""
    flags = ["--child", "--exact", exact, *(["--tiny"] if tiny else [])]
    command = [sys.executable, "-m", MODULE, "large", *flags]
    before = _used_mib()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in child.stdout:
            row = json.loads(line)
            if row["step"] != "memory":
                yield row
                continue
            held = _used_mib() - before
            ratio = round(held / row["planned_mib"], 4)
            fits = PLANNED[0] <= ratio <= PLANNED[1] or tiny
            yield row | {"held_mib": round(held), "ratio": ratio, "bar": "0.98 to 1.02", "wrong": not fits}
            child.stdin.write("end\n")
            child.stdin.flush()
        code = child.wait()
    yield {"step": "end", "code": code, "wrong": code != 0}


def serve(tiny: bool, exact: str) -> int:
    """The process: tells a row on each line of its output, and holds its memory until it reads one."""
    plan, start = TINY_PLAN if tiny else FULL, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        worker = build(plan.rig, Path(folder), exact)
        terms = {name: round(size / MIB) for name, size in worker.budget.terms.fixed.items()}
        started = {"seconds": round(time.perf_counter() - start, 1), "blocks": worker.budget.blocks}
        _tell("start", **started, fixed_mib=terms, **_reserved())
        captured = worker.graphs.captures
        comparison = Comparison(worker, plan)
        cells = (Cell(4, 4, 8),) if tiny else CELLS
        for cell in cells:
            row = comparison.cell(cell, plan.loads[cell.requests])
            _tell("texts", **row, wrong=row["exact"]["differ"] > 0 or row["exact"]["streams"] == 0)
        late = worker.graphs.captures - captured
        _tell("graphs", captures=captured, after_warm_up=late, recaptures=worker.graphs.recaptures, wrong=late > 0)
        _tell("exactness", counts=worker.exactness.counts, unchecked=worker.exactness.unchecked)
        _tell("memory", planned_mib=round(_planned_mib(worker)), **_reserved())
        sys.stdin.readline()
        worker.close()
    return 0


def _planned_mib(worker: Worker) -> float:
    """What the target's process may hold; there is no drafter's."""
    budget = worker.budget
    return (budget.total_bytes - budget.terms.fixed.get("drafter", 0)) / MIB


def _reserved() -> Row:
    if not torch.cuda.is_available():
        return {}
    return {"reserved_mib": torch.cuda.memory_reserved() // MIB, "allocated_mib": torch.cuda.memory_allocated() // MIB}


def _used_mib() -> float:
    """Of the whole GPU, whoever holds it."""
    if not torch.cuda.is_available():
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB


def _tell(step: str, **more: object) -> None:
    print(json.dumps({"step": step, **more}), flush=True)
