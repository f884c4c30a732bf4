"""python -m tests.bench.gpu.residency: texts and speed of a mixture whose experts lie partly in host memory.

Few layers in a published shape, random weights and a router that spreads. At each share of experts that the GPU holds
the same requests run one at a time, plain and with drafts, on a GPU with a round planned ahead, as services do. Texts
are compared with those of all experts on the GPU. Beside the time of a token stands what its bytes ask for: those of
host memory at the rate of a copy over the link, measured before, and all others at 4.3 TB/s.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from services.target.build_device import Worker
from services.target.core.request import RequestSpec
from tests.bench.gpu.exact.loads import LoadSizes, Text, specs_of
from tests.bench.gpu.exact.rounds_rig import Cell, RigShape, Rounds, Truth, build
from tests.bench.gpu.shapes import FORMATS, MIXTURES, TINY

READ = 4.3e12
SHARES = (100, 60, 20)
COPIED = 1 << 28


@dataclass(frozen=True)
class Line:
    """One share and width: texts, how many differ, milliseconds a token and those that its bytes ask for."""

    share: int
    width: int
    texts: int
    differ: int
    ms: float
    floor_ms: float
    host_mb: float
    device_mb: float
    exchanges: int
    recaptures: int

    @property
    def ratio(self) -> float:
        """Time by that of the bytes."""
        return self.ms / self.floor_ms


@dataclass(frozen=True)
class Load:
    """What is run: requests of so many tokens, one after the other, at each width."""

    rig: RigShape
    requests: int
    tokens: int


def load_of(name: str, layers: int, tiny: bool, weights: str = "bf16") -> Load:
    """The load of a GPU, or a tiny one of a CPU."""
    shape, family, changes = MIXTURES[name]
    if tiny:
        return Load(RigShape(TINY, "cpu", "float32", 2, (1, 4), (32,), 128, family), 2, 12)
    own = replace(shape, layers=layers) if layers else shape
    rig = RigShape(own, "cuda", "bfloat16", 4, (1, 4), (256,), 1024, family, changes | FORMATS[weights])
    return Load(replace(rig, products="false" if weights == "bf16" else "true"), 4, 192)


def link_rate(device: torch.device) -> float:
    """Bytes a second of a copy from locked memory."""
    if device.type == "cpu":
        return 1e10
    host, there = torch.empty(COPIED, dtype=torch.uint8, pin_memory=True), torch.empty(COPIED, dtype=torch.uint8)
    there = there.to(device)
    best = 0.0
    for _ in range(5):
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        there.copy_(host, non_blocking=True)
        torch.cuda.synchronize(device)
        best = max(best, COPIED / (time.perf_counter() - began))
    return best


def lines_of(load: Load, share: int, expected: list[list[int]]) -> Iterator[Line]:
    """Run all requests at each width; the first share writes the expected texts."""
    rig = replace(load.rig, expert_bytes=budget(load, share))
    specs = [replace(spec, logprobs=None) for spec in specs_of(load.requests, rig.shape.vocab, sizes(load))]
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        worker = build(rig, Path(folder), "off")
        try:
            link = link_rate(worker.runner.pool.device)
            truth: Truth = {spec.request_id: spec.token_ids for spec in specs}
            number = 0
            for width in rig.widths:
                texts, line, number = _run(worker, load, share, width, specs, truth, number, link)
                expected.extend([text.tokens for text in texts] if not expected else [])
                truth = {spec.request_id: [*spec.token_ids, *text] for spec, text in zip(specs, expected, strict=True)}
                differ = sum(text.tokens != one for text, one in zip(texts, expected, strict=True))
                yield replace(line, differ=differ)
        finally:
            worker.close()


def _run(
    worker: Worker, load: Load, share: int, width: int, specs: Sequence[RequestSpec], truth: Truth, number: int,
    link: float,
) -> tuple[list[Text], Line, int]:  # fmt: skip
    rounds = Rounds(worker, Cell(width, 1, load.rig.chunks[-1], ahead=load.rig.device == "cuda"), truth, number=number)
    use, before = worker.runner.experts, worker.runner.graphs()
    settle(worker)
    device, host, exchanges = use.read_bytes["device"], use.read_bytes["host"], use.exchanges
    began = time.perf_counter()
    texts = rounds.run(specs)
    took = time.perf_counter() - began
    settle(worker)
    tokens = sum(len(text.tokens) for text in texts)
    near, far = (use.read_bytes["device"] - device) / tokens, (use.read_bytes["host"] - host) / tokens
    model = worker.runner.pool.model
    rest = model.weight_bytes - experts_held(worker) - (0 if model.spec.tied else model.embed_VD.nbytes)
    floor = far / link + (near + rest * rounds.counts.rounds / tokens) / READ
    line = Line(
        share, width, len(texts), 0, took / tokens * 1e3, floor * 1e3, far / 1e6, near / 1e6,
        use.exchanges - exchanges, worker.runner.graphs().recaptures - before.recaptures,
    )  # fmt: skip
    return texts, line, rounds.number


def settle(worker: Worker) -> None:
    """Bring the counts up to date: two readings, whose copies have arrived."""
    use = worker.runner.experts
    for _ in range(2):
        use.tell()
        if worker.runner.pool.device.type == "cuda":
            torch.cuda.synchronize()
    use.tell()


def experts_held(worker: Worker) -> int:
    """Bytes of the experts that the GPU holds."""
    return sum(own.gate_up_EFD.nbytes + own.down_EDF.nbytes for own in worker.runner.pool.model.mixtures)


def budget(load: Load, share: int) -> int:
    """Bytes of so many hundredths of all experts; 0: all."""
    changes, shape = load.rig.changes, load.rig.shape
    if share == 100 or load.rig.device == "cpu":
        return 0
    size = 2 if load.rig.products == "false" else 1
    each = 3 * shape.hidden * int(changes["moe_intermediate_size"]) * size * shape.layers
    return each * round(int(changes["num_experts"]) * share / 100)


def sizes(load: Load) -> LoadSizes:
    """Requests of short prompts."""
    return LoadSizes(load.tokens, ((8, 40), (60, 100)))


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a short table."""
    head = "share  width  differ  of  ms a token  tok/s  its bytes ms  ratio  host MB  device MB  exchanges  recaptures"
    rows = [
        f"{one.share:5} {one.width:6} {one.differ:7} {one.texts:3} {one.ms:11.3f} {1e3 / one.ms:6.0f} "
        f"{one.floor_ms:13.3f} {one.ratio:6.2f} {one.host_mb:8.1f} {one.device_mb:10.1f} {one.exchanges:10} "
        f"{one.recaptures:11}"
        for one in lines
    ]
    return "\n".join([head, *rows])


def main() -> int:
    """Returns 1 where a text differs, or a step was captured late."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.residency", description=__doc__)
    parser.add_argument("--model", choices=sorted(MIXTURES), default="30b-a3b")
    parser.add_argument("--layers", type=int, default=0, help="of the target; 0: few")
    parser.add_argument("--weights", choices=("bf16", "fp8"), default="bf16", help="of the target's file")
    parser.add_argument("--shares", type=int, nargs="+", default=SHARES)
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU, all of it in one memory")
    asked = parser.parse_args()
    load, expected = load_of(asked.model, asked.layers, asked.tiny, asked.weights), list[list[int]]()
    lines = [line for share in asked.shares for line in lines_of(load, share, expected)]
    print(table(lines))
    return int(any(line.differ or line.recaptures for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
