"""python -m tests.bench.gpu.products.whole 64x8 8p512: ranks what computes a product, by whole steps that last.

`64x8` is a verify of 64 sequences by 8 rows, `8p512` a pack of eight prompts of 512 tokens.

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
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.persistent.wide import wide_cut
from services.target.core.plan import Chunk
from services.target.device.packing import packed
from services.target.device.shapes import PackShape
from services.target.device.steps import kind_of
from tests.bench.gpu.account import floors, parts_of, table
from tests.bench.gpu.kernels_added import added_by, places
from tests.bench.gpu.products.cases import Case, layer_weights
from tests.bench.gpu.products.choices import KINDS, Cut, choices_of, serving
from tests.bench.gpu.products.ruled import compile_all
from tests.bench.gpu.results import circumstances, short_name
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import SHAPES

Row = dict[str, Any]
TABLES, TOGETHER = "as in the tables", "together"
LEAST_GAIN = 0.003
"""Of a whole verify, from which on a choice is timed together with others."""
_CONTEXT, _ROOM, _SETTLING, _BETWEEN, _SEGMENT = 768, 512, 14, 4, 64
Plan = Mapping[str, Mapping[Case, Cut]]


def main() -> int:
    """Ranks each verify in turn; returns 1 where a bit differs."""
    chosen, start = _arguments(), time.monotonic()
    if chosen.device == "cuda":
        compile_all(list(dict.fromkeys(cut for step in chosen.steps for cut in _cuts(chosen, step))))
    rows: list[Row] = []
    document: Row = {}
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        rig = _rig(chosen, Path(folder))
        for step in chosen.steps:
            if time.monotonic() - start > chosen.seconds:
                print(f"no time for {step.name}")
                continue
            rows.append(_row(chosen, (PackTrial if step.prompt else Trial)(rig, step, chosen)))
            document = _document(chosen, rows, round(time.monotonic() - start))
            _tell(rows[-1])
    print(json.dumps(document))
    if chosen.kernels:
        print(table(rows))
    return int(any(row["differ"] for row in rows))


def _rig(chosen: argparse.Namespace, folder: Path) -> Rig:
    """Captures rounds of these sequences and packs of these prompts alone."""
    buckets = tuple(sorted({step.sequences for step in chosen.steps}))
    widths = tuple(sorted({1, 4, *(step.width for step in chosen.steps if not step.prompt)}))
    memory, shape = int(chosen.memory_gb * (1 << 30)), SHAPES[chosen.shape]
    prompts = [step for step in chosen.steps if step.prompt]
    packs = sorted({1, *(step.sequences * -(-step.width // _SEGMENT) for step in prompts)})
    shapes = tuple(PackShape(segments, _SEGMENT) for segments in packs)
    settings = RigSettings(shape, chosen.device, chosen.dtype, buckets[-1], widths, 2048, memory, shapes[-1].rows)
    with (
        mock.patch("services.target.build_device.buckets_of", return_value=buckets),
        mock.patch("services.target.build_device.packs_of", return_value=shapes),
    ):
        return Rig(settings, folder)


def _cuts(chosen: argparse.Namespace, step: Step) -> list[PersistentTiling]:
    return [cut for case in _cases(chosen, step) for cut in choices_of(case).values() if cut is not None]


def _document(chosen: argparse.Namespace, rows: Sequence[Row], seconds: int) -> Row:
    """What was measured so far, which is kept: a machine may be taken away."""
    document = {
        "bench": "products", **circumstances(chosen.shape, "tests.bench.gpu.products.whole"),
        "seconds": seconds, "steps": list(rows),
    }  # fmt: skip
    if chosen.save:
        name = f"gpu_{short_name(document['device'])}_products_{time.strftime('%Y-%m-%d')}_whole.json"
        (chosen.save / name).write_text(json.dumps(document, indent=1) + "\n")
    return document


def _tell(row: Row) -> None:
    print(f"{row['step']}: {row['us']} us")
    for ratio, each, name in sorted((statistics.mean(each), each, name) for name, each in row["ratios"].items()):
        print(f"{ratio:.4f}  {each}  {name}", flush=True)


@dataclass(frozen=True)
class Step:
    """A verify of `sequences` by `width` rows, or a pack of as many prompts of `width` tokens."""

    sequences: int
    width: int
    prompt: bool

    @property
    def rows(self) -> int:
        """Rows of its products."""
        return self.sequences * self.width

    @property
    def name(self) -> str:
        """As it is asked for."""
        return f"{self.sequences}{'p' if self.prompt else 'x'}{self.width}"


@dataclass
class Trial:
    """A verify step of a rig, captured by any choice."""

    rig: Rig
    step: Step
    chosen: argparse.Namespace

    def __post_init__(self) -> None:
        context = 0 if self.step.prompt else _CONTEXT
        self.rig.seat(self.step.sequences, context, _CONTEXT + _ROOM - context)
        self._graphs, self._first = self.rig.steps.graphs, torch.empty(0)
        self.prepare()

    def prepare(self) -> None:
        """Finds the step, and fills its inputs."""
        each, width = self.step.sequences, self.step.width
        kind = kind_of(self.rig.pool.settings, (each, width), width, _CONTEXT + width)
        self._verify = self.rig.steps.verify(each, width, "greedy", kind)

    def run(self) -> None:
        """What is captured."""
        self._verify.run()

    def result(self) -> Tensor:
        """What a replay has left."""
        return self._verify.logits_BWV

    def reset(self) -> None:
        """Puts the slots back to the start."""
        self.rig.reset(self.step.sequences, _CONTEXT)

    def capture(self, key: Hashable, choice: Mapping[Case, Cut]) -> bool:
        """Record it; whether its scores are those of the first capture."""
        with serving(choice):
            self.reset()
            self._graphs.capture(key, self.run, ())
        self.reset()
        self._graphs.replay(key)
        found = self.result()
        if not self._first.numel():
            self._first = found.clone()
        return same_bits(found, self._first)

    def micros(self, key: Hashable) -> float:
        """Microseconds of a replay in a loop; the first replays only set clocks and power."""
        self.reset()
        once = self._timed(key, 2)
        replays = max(1, min(self.chosen.replays, round(self.chosen.loop_s * 1e6 / once)))
        self._timed(key, min(_SETTLING, replays // 2))
        return self._timed(key, replays)

    def _timed(self, key: Hashable, replays: int) -> float:
        self.rig.synchronise()
        start = time.perf_counter()
        for _ in range(replays):
            self._graphs.replay(key)
        self.rig.synchronise()
        return (time.perf_counter() - start) / max(1, replays) * 1e6


class PackTrial(Trial):
    """A pack of prompts that begin, captured by any choice."""

    def prepare(self) -> None:
        """Finds the pack, and fills it with tokens that differ."""
        steps, each, length = self.rig.steps, self.step.sequences, self.step.width
        ids = torch.arange(each * length).view(each, length).mul(31).remainder(self.rig.settings.shape.vocab - 9).add(7)
        chunks = [Chunk(slot, 1, 0, tuple(row), last=True) for slot, row in enumerate(ids.tolist())]
        packs = packed(chunks, self.rig.pool.settings.packs)
        assert len(packs) == 1, f"{self.step.name} is no single pack"
        steps.pack.set(packs[0])
        self._pack = steps._prefill[packs[0].shape]

    def run(self) -> None:
        """What is captured."""
        self._pack.run()

    def result(self) -> Tensor:
        """The hidden states behind which first tokens are chosen."""
        return self.rig.steps.pack.hidden_FD[: self.step.sequences]

    def reset(self) -> None:
        """A pack writes the same places again."""


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


def _cases(chosen: argparse.Namespace, step: Step) -> list[Case]:
    weights = layer_weights(SHAPES[chosen.shape])
    return [Case(name, *weights[name], step.rows) for name in chosen.products]


def _row(chosen: argparse.Namespace, trial: Trial) -> Row:
    plan: dict[str, Mapping[Case, Cut]] = {TABLES: {}}
    for case in _cases(chosen, trial.step):
        serves = wide_cut(*case.product, KINDS[case.name][0])
        plan |= {name: {case: cut} for name, cut in choices_of(case).items() if cut != serves}
    differ, ratios, us = _timed(trial, plan)
    best = best_of(plan, ratios)
    if best and not chosen.once:
        more, both, us = _timed(trial, {TABLES: {}, TOGETHER: best})
        differ, ratios = differ + more, {**ratios, TOGETHER: both[TOGETHER], f"{TABLES}, beside": both[TABLES]}
        best = best_of({TOGETHER: best}, both)
    row = {"step": trial.step.name, "us": round(us), "differ": differ, "ratios": ratios}
    return row | (_parts(trial, (trial.step.name, len(plan), TABLES, 0)) if chosen.kernels else {})


def _parts(trial: Trial, key: Hashable) -> Row:
    """What the tables' capture takes by kernels, which are told, and by parts."""
    step, shape = trial.step, trial.rig.settings.shape
    trial.reset()
    kernels = added_by(lambda: trial.rig.steps.graphs.replay(key))
    print(step.name, *places(kernels, shape.layers), sep="\n")
    least = floors(shape, step.sequences, step.width, 0 if step.prompt else _CONTEXT)
    parts = {name: round(us, 1) for name, us in parts_of(kernels, shape.layers).items()}
    return {"parts": parts, "floors": {name: round(us, 1) for name, us in least.items()}}


def _timed(trial: Trial, plan: Plan) -> tuple[list[str], dict[str, list[float]], float]:
    """Return what differs, each choice's ratio by capture, and microseconds of the tables."""
    keys = [(trial.step.name, len(plan), name, number) for number in range(trial.chosen.captures) for name in plan]
    differ = [name for key in keys if not trial.capture(key, plan[name := key[2]])]
    settled = time.monotonic() + trial.chosen.settle_s
    for turn in count():
        trial.micros(keys[0])
        if turn + 1 >= trial.chosen.turns and time.monotonic() >= settled:
            break
    ratios = ratios_of(keys, keys[0], trial.micros, trial.chosen.turns)
    by_name = {name: [round(ratios[key], 4) for key in keys if key[2] == name] for name in plan}
    return differ, by_name, trial.micros(keys[0])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=_step, nargs="+", help="sequences by rows, as 64x8; prompts by tokens, as 8p512")
    parser.add_argument("--products", nargs="*", choices=sorted(KINDS), default=["gate_up", "down", "o"])
    parser.add_argument("--captures", type=int, default=2, help="of each choice")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--replays", type=int, default=30, help="of a loop, at most")
    parser.add_argument("--loop-s", type=float, default=10.0, help="of a loop, at most")
    parser.add_argument("--settle-s", type=float, default=0.0, help="of loops before the first that counts, at least")
    parser.add_argument("--once", action="store_true", help="what gains is not timed together")
    parser.add_argument("--kernels", action="store_true", help="tell what each kernel of the tables' capture adds")
    parser.add_argument("--seconds", type=float, default=1e6, help="no step is begun later")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--memory-gb", type=float, default=56.0)
    parser.add_argument("--save", type=Path)
    return parser.parse_args()


def _step(text: str) -> Step:
    prompt = "p" in text
    sequences, width = map(int, text.split("p" if prompt else "x"))
    return Step(sequences, width, prompt)


if __name__ == "__main__":
    sys.exit(main())
