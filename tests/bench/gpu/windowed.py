"""python -m tests.bench.gpu.windowed --model gemma4-26b: a model with windows on a GPU, exact and timed.

Rounds of random drafts, partly right, in one process: texts of any width beside any others against texts of plain
rounds, keys and values, captures after the start, and what is held beside the plan. Then replays of plain rounds and of
verifies, beside the bytes of what they read: all weights but experts that no row chose, and keys and values.
The exit status is 1 when anything differs or is captured. --tiny takes a load that a CPU manages, and times nothing.
--alone has one slot, captures for no more, and tells how long each kernel of a plain round ran.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from services.common.model.spec import Attention
from services.target.build_device import Worker
from tests.bench.gpu.exact.loads import LoadSizes
from tests.bench.gpu.exact.report import Row, conclude, exact_row
from tests.bench.gpu.exact.rounds import PROMPTS, SHORT, TINY, Comparison, Plan, memory_of, of_experts
from tests.bench.gpu.exact.rounds_rig import Cell, RigShape, build
from tests.bench.gpu.kernels_added import kernels_of
from tests.bench.gpu.parts_held import told
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import MIXTURES
from tests.bench.gpu.steps import read_bandwidth
from tests.gpu.memory import used_bytes

CONTEXT, ROOM = 2048, 256
"""Of the timed sequences: so many tokens, and places behind them."""
CELLS = (
    Cell(1, 1, 2048),
    Cell(16, 1, 2048),
    Cell(16, 32, 2048, ahead=True),
    Cell(16, 8, 512, hit=True),
    Cell(16, 8, 512, preemption=True, ahead=True),
    Cell(1, 32, 2048, mixed=True),
    Cell(16, 32, 2048, ahead=True, turns=True),
)
TINY_CELLS = Cell(4, 1, 8), Cell(4, 4, 32), Cell(4, 4, 8, hit=True), Cell(4, 4, 32, preemption=True)


def main() -> int:
    """Runs one model."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.windowed", description=__doc__)
    parser.add_argument("--model", choices=sorted(MIXTURES), default="gemma4-26b")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--few", action="store_true", help="of the cells, for what is held and timed")
    parser.add_argument("--alone", action="store_true", help="one request at a time, and what its kernels take")
    parser.add_argument("--tokens", type=int, default=64, help="of each text")
    parser.add_argument("--memory-gib", type=int, default=60)
    parser.add_argument("--after", type=Path, help="times when this file is there: another process is busy until then")
    chosen = parser.parse_args()
    plan = plan_of(chosen.model, chosen.tiny, chosen.tokens, chosen.memory_gib)
    cells: Sequence[Cell] = TINY_CELLS if chosen.tiny else CELLS
    if chosen.alone:
        plan = replace(plan, rig=replace(plan.rig, slots=1), loads={1: 2}, kv_requests=1)
        cells = [cell for cell in cells if cell.requests == 1]
    rows = _rows(plan, cells[:3] if chosen.few else cells, chosen.tiny, chosen.after)
    return conclude("windowed", chosen.model, rows, "")


def plan_of(model: str, tiny: bool, tokens: int, memory_gib: int) -> Plan:
    """Requests past the windows, and a limit of the context for which layers with a window have places of their own."""
    if tiny:
        return of_experts(TINY, model, tiny=True)
    plan = of_experts(SHORT, model, tiny=False)
    rig = replace(plan.rig, widths=(1, 16), context_limit=16384, memory_bytes=memory_gib << 30)
    loads = {1: 2, 8: 12, 32: 40}
    return replace(plan, rig=rig, sizes=LoadSizes(tokens, PROMPTS), loads=loads, kv_requests=3, kv_tokens=200)


def _rows(plan: Plan, cells: Sequence[Cell], tiny: bool, after: Path | None) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        start, folder = time.perf_counter(), Path(name)
        opened_bytes = _opened(tiny)
        worker = build(plan.rig, folder)
        _tell(f"started in {time.perf_counter() - start:.0f} s, {worker.budget.blocks} blocks, near {_near(worker)}")
        before = worker.runner.graphs()
        comparison = Comparison(worker, plan)
        for cell in cells:
            yield comparison.cell(cell, plan.loads[cell.requests])
        yield from comparison.kv_rows()
        graphs = worker.runner.graphs()
        captured = graphs.captures + graphs.recaptures - before.captures - before.recaptures
        memory = {} if tiny else memory_of(worker)
        _tell(f"compared after {time.perf_counter() - start:.0f} s")
        if not tiny:
            _tell(told(worker, opened_bytes))
        yield exact_row("captures after the start", 1, captured, **memory)
        if not tiny:
            yield from _timed(worker, plan.rig, folder, after)
        worker.close()


def _timed(worker: Worker, shape: RigShape, folder: Path, after: Path | None) -> Iterator[Row]:
    """Replays of captured rounds: microseconds, and by how many times they exceed what their bytes take."""
    deadline = time.monotonic() + 60
    _tell("waits")
    while after and not after.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    settings = RigSettings(
        shape.shape, shape.device, shape.dtype, shape.slots, shape.widths, shape.context_limit, shape.memory_bytes
    )
    states = worker.runner.pool.states
    if states.places_N is not None:
        states.places_N.copy_(torch.arange(len(states.places_N), device=states.places_N.device))
        states.places_N[_near(worker) + 1 :] = 0
    rig = Rig.around(settings, worker, folder / "drafter")
    bandwidth = read_bandwidth(rig)
    for bucket in (1, 8, 32) if shape.slots > 1 else (1,):
        assert not _near(worker) or bucket * -(-(CONTEXT + ROOM) // 16) <= _near(worker), "sequences share places"
        for width in shape.widths:
            rig.seat(bucket, CONTEXT, ROOM)
            replay = partial(rig.steps.graphs.replay, rig.verify_key(bucket, width, CONTEXT))
            micros, read = rig.micros(replay, repeats=10), _read_bytes(rig, bucket, replay)
            floor = read / bandwidth * 1e6
            more = {
                "us": round(micros),
                "tb_per_s": round(bandwidth / 1e12, 2),
                "floor_us": round(floor),
                "times": round(micros / floor, 2),
            }
            yield exact_row(f"{bucket} at once, width {width}, context {CONTEXT}: a replay", 1, 0, **more)
            if shape.slots == 1 and width == 1:
                _tell(kernels_of(replay))


def _read_bytes(rig: Rig, bucket: int, replay: Callable[[], object]) -> int:
    """Bytes of weights and of keys and values that a round of so many sequences reads, each once."""
    model, pool = rig.pool.model, rig.pool
    own = model.mixtures
    rig.reset(bucket, CONTEXT)
    before = torch.stack([one.uses_E for one in own]).clone() if own else None
    replay()
    rig.synchronise()
    read = model.weight_bytes + model.dtype.itemsize * pool.context.elements
    if before is not None:
        used = int((torch.stack([one.uses_E for one in own]) - before).sum())
        every = sum(len(one.uses_E) for one in own)
        read += (used - every) * own[0].expert_bytes
    if not model.spec.tied:
        read -= model.embed_VD.nbytes
    layers = [layer.mixer for layer in model.spec.layers if isinstance(layer.mixer, Attention)]
    seen = [min(CONTEXT, one.window or CONTEXT) * 2 * one.kv_heads * one.head_dim for one in layers]
    return read + bucket * model.dtype.itemsize * sum(seen)


def _near(worker: Worker) -> int:
    """Blocks of layers with a window; 0 where they have all."""
    return worker.runner.pool.settings.near


def _opened(tiny: bool) -> int:
    """Bytes of the GPU that are in use once this process has opened it."""
    if not tiny:
        torch.zeros(1, device="cuda")
    return used_bytes()


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
