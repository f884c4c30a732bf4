"""python -m tests.bench.gpu.products.whole 64x8: ranks what computes a product, by whole verifies in loops that last.

At its limit of power a GPU is as fast as what all kernels take allows, so a loop of one product tells little. Every
choice is captured several times, since captures of the same kernels differ by some thousandths. Its loops are taken in
turn with those of the tables as they are. Choices that gain enough are then timed together. Each must give the
scores of the tables, bit by bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.target.device.steps import kind_of
from tests.bench.gpu.products.cases import Case, layer_weights
from tests.bench.gpu.products.choices import KINDS, Cut, choices_of, serving
from tests.bench.gpu.results import circumstances, short_name
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import SHAPES

Row = dict[str, Any]
TABLES, TOGETHER = "as in the tables", "together"
LEAST_GAIN = 0.003
"""Of a whole verify, from which on a choice is timed together with others."""
_CONTEXT, _ROOM, _SETTLING, _BETWEEN = 768, 512, 14, 4
Plan = Mapping[str, Mapping[Case, Cut]]


def main() -> int:
    """Ranks each verify in turn; returns 1 where a bit differs."""
    chosen, start = _arguments(), time.monotonic()
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        sequences = max(each for each, _ in chosen.verify)
        widths = tuple(sorted({1, *(width for _, width in chosen.verify)}))
        memory, shape = int(chosen.memory_gb * (1 << 30)), SHAPES[chosen.shape]
        chunk = 0 if chosen.shape == "qwen3-4b" else 64
        settings = RigSettings(shape, chosen.device, chosen.dtype, sequences, widths, 2048, memory, chunk)
        rig = Rig(settings, Path(folder))
        rows: list[Row] = []
        for each, width in chosen.verify:
            rows.append(_verify_row(chosen, Trial(rig, each, width, chosen)))
            document = _document(chosen, rows, round(time.monotonic() - start))
            _tell(rows[-1])
    print(json.dumps(document))
    return int(any(row["differ"] for row in rows))


def _document(chosen: argparse.Namespace, rows: Sequence[Row], seconds: int) -> Row:
    """What was measured so far, which is kept: a machine may be taken away."""
    document = {
        "bench": "products", **circumstances(chosen.shape, "tests.bench.gpu.products.whole"),
        "seconds": seconds, "verifies": list(rows),
    }  # fmt: skip
    if chosen.save:
        name = f"gpu_{short_name(document['device'])}_products_{time.strftime('%Y-%m-%d')}_whole.json"
        (chosen.save / name).write_text(json.dumps(document, indent=1) + "\n")
    return document


def _tell(row: Row) -> None:
    print(f"{row['verify']}: {row['us']} us")
    for ratio, each, name in sorted((statistics.mean(each), each, name) for name, each in row["ratios"].items()):
        print(f"{ratio:.4f}  {each}  {name}", flush=True)


@dataclass
class Trial:
    """A verify step of a rig, captured by any choice."""

    rig: Rig
    sequences: int
    width: int
    chosen: argparse.Namespace

    def __post_init__(self) -> None:
        self.rig.seat(self.sequences, _CONTEXT, _ROOM)
        kind = kind_of(self.rig.pool.settings, (self.sequences, self.width), self.width, _CONTEXT + self.width)
        self._step = self.rig.steps.verify(self.sequences, self.width, "greedy", kind)
        self._scores = torch.empty(0)

    def capture(self, key: Hashable, choice: Mapping[Case, Cut]) -> bool:
        """Record it; whether its scores are those of the first capture."""
        with serving(choice):
            self.rig.reset(self.sequences, _CONTEXT)
            self.rig.steps.graphs.capture(key, self._step.run, ())
        self.rig.reset(self.sequences, _CONTEXT)
        self.rig.steps.graphs.replay(key)
        scores = self._step.logits_BWV
        if not self._scores.numel():
            self._scores = scores.clone()
        return same_bits(scores, self._scores)

    def micros(self, key: Hashable) -> float:
        """Microseconds of a replay in a loop; the first replays only set clocks and power."""
        self.rig.reset(self.sequences, _CONTEXT)
        for _ in range(_SETTLING):
            self.rig.steps.graphs.replay(key)
        self.rig.synchronise()
        start = time.perf_counter()
        for _ in range(self.chosen.replays):
            self.rig.steps.graphs.replay(key)
        self.rig.synchronise()
        replays: int = self.chosen.replays
        return (time.perf_counter() - start) / replays * 1e6


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether all numbers are the same, the sign of zero included."""
    return torch.equal(left.view(torch.int16), right.view(torch.int16))


def ratios_of(
    names: Sequence[Hashable], first: Hashable, micros: Callable[[Hashable], float], turns: int
) -> dict[Hashable, float]:
    """Return the median of each one's times over those of `first`, which is timed before and after every few."""
    found: dict[Hashable, list[float]] = {name: [] for name in names}
    for turn in range(turns):
        at = turn * len(names) // turns
        order = [*names[at:], *names[:at]]
        before = micros(first)
        for begin in range(0, len(order), _BETWEEN):
            times = {name: micros(name) for name in order[begin : begin + _BETWEEN]}
            after = micros(first)
            for name, each in times.items():
                found[name].append(each / (before + after) * 2)
            before = after
    return {name: statistics.median(each) for name, each in found.items()}


def best_of(plan: Plan, ratios: Mapping[str, Sequence[float]]) -> dict[Case, Cut]:
    """Return the best choice of each product, of those that gain enough against the tables' captures."""
    tables = statistics.mean(ratios[TABLES])
    best: dict[Case, Cut] = {}
    for name in sorted(plan, key=lambda name: statistics.mean(ratios[name])):
        if statistics.mean(ratios[name]) <= tables * (1 - LEAST_GAIN):
            best = {**plan[name], **best}
    return best


def _verify_row(chosen: argparse.Namespace, trial: Trial) -> Row:
    rows = trial.sequences * trial.width
    weights = layer_weights(trial.rig.settings.shape)
    cases = [Case(name, *weights[name], rows) for name in chosen.products]
    plan: dict[str, Mapping[Case, Cut]] = {TABLES: {}}
    for case in cases:
        plan |= {name: {case: cut} for name, cut in choices_of(case).items()}
    differ, ratios, us = _timed(trial, plan)
    best = best_of(plan, ratios)
    if best:
        more, both, us = _timed(trial, {TABLES: {}, TOGETHER: best})
        differ, ratios = differ + more, {**ratios, TOGETHER: both[TOGETHER], f"{TABLES}, beside": both[TABLES]}
        best = best_of({TOGETHER: best}, both)
    return {"verify": f"{trial.sequences}x{trial.width}", "us": round(us), "differ": differ, "ratios": ratios}


def _timed(trial: Trial, plan: Plan) -> tuple[list[str], dict[str, list[float]], float]:
    """Return what differs, each choice's ratio by capture, and microseconds of the tables."""
    keys = [(len(plan), name, number) for number in range(trial.chosen.captures) for name in plan]
    differ = [name for key in keys if not trial.capture(key, plan[name := key[1]])]
    for _ in range(trial.chosen.turns):
        trial.micros(keys[0])
    ratios = ratios_of(keys, keys[0], trial.micros, trial.chosen.turns)
    by_name = {name: [round(ratios[key], 4) for key in keys if key[1] == name] for name in plan}
    return differ, by_name, trial.micros(keys[0])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verify", type=_pair, nargs="+", help="sequences by rows, as 64x8")
    parser.add_argument("--products", nargs="*", choices=sorted(KINDS), default=["gate_up", "down", "o"])
    parser.add_argument("--captures", type=int, default=2, help="of each choice")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--replays", type=int, default=30)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--memory-gb", type=float, default=56.0)
    parser.add_argument("--save", type=Path)
    return parser.parse_args()


def _pair(text: str) -> tuple[int, int]:
    sequences, width = map(int, text.split("x"))
    return sequences, width


if __name__ == "__main__":
    sys.exit(main())
