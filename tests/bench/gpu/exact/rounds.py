"""Texts of plain rounds of one batch against texts of rounds of any width, batch, chunk and cache state.

The texts to compare with come from plain rounds of as many requests as there are slots; a sample of them is run once
more with one request at a time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from services.common.serving.settings import Choice
from services.target.build_device import Worker
from services.target.core.request import RequestSpec
from tests.bench.gpu.exact.cover import pairwise
from tests.bench.gpu.exact.loads import LoadSizes, Text, begun, resumed, specs_of
from tests.bench.gpu.exact.report import Row, exact_row
from tests.bench.gpu.exact.rounds_rig import Cell, RigShape, Rounds, Truth, build
from tests.bench.gpu.shapes import FORMATS, SHAPES, mixture
from tests.gpu.memory import used_bytes
from tests.support.tiny_checkpoints import SLIDING

FLAGS = ("hit", "preemption", "ahead")


@dataclass(frozen=True)
class Plan:
    """What is run; `loads` are the requests of a cell, by how many of them run at once."""

    rig: RigShape
    sizes: LoadSizes
    loads: dict[int, int]
    chunks: tuple[int, ...]
    kv_requests: int
    kv_tokens: int

    @property
    def cells(self) -> list[Cell]:
        """Every pair of values at least once; rows that take turns; on a GPU also rows beside the packs of a burst."""
        switch = (False, True)
        found = pairwise({
            "width": self.rig.widths, "requests": tuple(self.loads), "chunk": self.chunks, "hit": switch,
            "preemption": switch, "ahead": switch,
        })  # fmt: skip
        cells = [
            Cell(one["width"], one["requests"], one["chunk"], *(bool(one[name]) for name in FLAGS)) for one in found
        ]
        most, chunk, ahead = max(self.loads), self.chunks[-1], self.rig.device == "cuda"
        middle = self.rig.widths[len(self.rig.widths) // 2]
        cells.append(Cell(middle, most, chunk, ahead=ahead, turns=True))
        if self.rig.device != "cuda":
            return cells
        return [*cells, Cell(1, most, chunk, mixed=True), Cell(middle, most, chunk, ahead=True, mixed=True)]

    @property
    def most(self) -> int:
        """Requests of the largest cell."""
        return max(self.loads.values())

    @property
    def plain(self) -> Cell:
        """Where the texts come from that others are compared with."""
        return Cell(1, self.rig.slots, self.chunks[-1])


PROMPTS = ((1, 40), (200, 800), (200, 800), (30, 300), (1500, 2600))
FULL = Plan(
    RigShape(SHAPES["qwen3-4b"], "cuda", "bfloat16", 128, (1, 4, 8, 16), (32, 128, 256, 512, 2048), 3072),
    LoadSizes(256, PROMPTS),
    {1: 4, 8: 32, 32: 128, 128: 384},
    (256, 2048),
    kv_requests=8,
    kv_tokens=700,
)
TINY = Plan(
    RigShape(SHAPES["tiny"], "cpu", "float64", 4, (1, 4), (8, 32), 128),
    LoadSizes(12, ((20, 60), (1, 6), (20, 60))),
    {1: 2, 4: 6},
    (8, 32),
    kv_requests=2,
    kv_tokens=20,
)
ALONE = 8
"""Requests of the sample that is run one at a time."""
CLOSE = 1e-9
"""By how much K/V may differ on a CPU, where sums of float64 have another order in another batch."""


class Comparison:
    """Runs cells against the texts of plain rounds."""

    def __init__(self, worker: Worker, plan: Plan) -> None:
        """Makes those texts."""
        self.worker, self._plan, self._number = worker, plan, 0
        self._on_cpu = plan.rig.device == "cpu"
        self.specs = specs_of(plan.most, plan.rig.shape.vocab, plan.sizes)
        self.plain = self._run(plan.plain, self.specs, {})[0]
        self._truth = _known(self.specs, self.plain)

    def cell(self, cell: Cell, count: int) -> Row:
        """Compares so many requests of one cell."""
        start = time.perf_counter()
        chosen = [index for index in range(count) if self._possible(cell, self.specs[index])]
        specs = [self.specs[index] for index in chosen]
        texts, rounds = self._hit(cell, specs) if cell.hit else self._run(cell, specs, self._truth)
        places = [self._difference(self.plain[index], text) for index, text in zip(chosen, texts, strict=True)]
        found = [place for place in places if place >= 0]
        more = asdict(rounds.counts) | {"tokens": sum(len(text.tokens) for text in texts)}
        more |= {"seconds": round(time.perf_counter() - start, 1)} | ({"earliest": min(found)} if found else {})
        if void := self._void(cell, rounds, more["tokens"], len(specs)):
            return exact_row(named(cell), 0, len(found), void=void, **more)
        return exact_row(named(cell), len(specs), len(found), **more)

    def kv_rows(self) -> Iterator[Row]:
        """K/V of plain decoding against K/V of the same tokens by chunks of a prompt, by verifies, and alone."""
        plan, sizes = self._plan, LoadSizes(self._plan.kv_tokens, ((1, 8),))
        specs = [replace(spec, logprobs=None) for spec in specs_of(plan.kv_requests, plan.rig.shape.vocab, sizes, 5)]
        batch, chunk = len(specs), plan.chunks[-1]
        texts, rounds = self._run(Cell(1, batch, chunk), specs, {})
        truth = _known(specs, texts)
        counts = [len(truth[spec.request_id]) - 1 for spec in specs]
        plain = self._kv(rounds, specs, counts)
        prompts = [_as_prompt(spec, truth[spec.request_id]) for spec in specs]
        ways = [(f"prefill in chunks of {each}", Cell(1, batch, each), prompts) for each in plan.chunks]
        ways += [(f"verifies of {width}", Cell(width, batch, chunk), specs) for width in plan.rig.widths[1:]]
        ways += [("plain rounds alone", Cell(1, 1, chunk), specs[:1])]
        for name, cell, asked in ways:
            found = self._kv(self._run(cell, asked, truth)[1], asked, counts[: len(asked)])
            odd = [pair for pair in zip(plain, found, strict=False) if not self._alike(*pair)]
            where = {"earliest": min(map(earliest, odd))} if odd else {}
            yield exact_row(f"K/V of plain rounds and of {name}", len(found), len(odd), **where)

    def _run(self, cell: Cell, specs: Sequence[RequestSpec], truth: Truth) -> tuple[list[Text], Rounds]:
        rounds = Rounds(self.worker, cell, truth, number=self._number)
        texts = rounds.run(specs)
        self._number = rounds.number
        return texts, rounds

    def _hit(self, cell: Cell, specs: Sequence[RequestSpec]) -> tuple[list[Text], Rounds]:
        """The first half of each text, then the rest by requests that find all of that in the prefix cache."""
        rounds = Rounds(self.worker, cell, self._truth, number=self._number)
        half = self._plan.sizes.tokens // 2
        first = rounds.run([begun(spec, half) for spec in specs])
        rest = rounds.run([resumed(spec, text.tokens) for spec, text in zip(specs, first, strict=True)])
        self._number = rounds.number
        pairs = zip(first, rest, strict=True)
        return [Text(one.tokens + other.tokens, one.logprobs + other.logprobs) for one, other in pairs], rounds

    def _possible(self, cell: Cell, spec: RequestSpec) -> bool:
        """On a CPU noise is made by the lengths that the host has read, which a round launched ahead has not."""
        return spec.sampling.greedy or not (self._on_cpu and cell.ahead)

    def _difference(self, expected: Text, got: Text) -> int:
        """The first token that differs, or whose log-probabilities do; -1 when none does."""
        pairs = enumerate(zip(expected.tokens, got.tokens, strict=False))
        token = next((place for place, (one, other) in pairs if one != other), -1)
        if token < 0 and len(expected.tokens) != len(got.tokens):
            token = min(len(expected.tokens), len(got.tokens))
        if token < 0 and not self._on_cpu and expected.logprobs != got.logprobs:
            told = enumerate(zip(expected.logprobs, got.logprobs, strict=False))
            token = next((place for place, (one, other) in told if one != other), 0)
        return token

    def _void(self, cell: Cell, rounds: Rounds, tokens: int, streams: int) -> str:
        """Why a cell has shown nothing: it did not draft, hit or preempt as it is named for, or texts are cut."""
        counts = rounds.counts
        checks = {
            "length of texts": tokens == streams * self._plan.sizes.tokens,
            "accepted": (counts.accepted > 0) == (cell.width > 1),
            "hit tokens": (counts.hit_tokens > 0) == cell.hit,
            "preempted": (counts.preempted > 0) == cell.preemption,
            "rows beside packs": counts.mixed > 0 or not cell.mixed,
            "rows left out": (counts.left_out > 0) == cell.turns,
        }
        return ", ".join(name for name, right in checks.items() if not right)

    def _kv(self, rounds: Rounds, specs: Sequence[RequestSpec], counts: Sequence[int]) -> list[list[Tensor]]:
        """Each request's K/V and draft context of its first tokens, out of the blocks that it had.

        Requests that ran at once had different ones, which nobody has been given since.
        """
        pool, blocks = self.worker.runner.pool, [rounds.blocks[spec.request_id] for spec in specs]
        every = [block for mine in blocks for block in mine]
        assert len(set(every)) == len(every), "blocks were used again before they were read"
        # Layers without a window have all blocks, others may have them elsewhere.
        paged = (max(pool.states.paged, key=lambda kv: kv.shape[2]), pool.draft_kv)
        return [
            [kv[:, :, torch.tensor(mine, device=pool.device)].flatten(2, 3)[:, :, :count].clone() for kv in paged]
            for mine, count in zip(blocks, counts, strict=True)
        ]

    def _alike(self, one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
        pairs = list(zip(one, other, strict=True))
        if self._on_cpu:
            return all(torch.allclose(mine, theirs, rtol=CLOSE, atol=CLOSE) for mine, theirs in pairs)
        return all(torch.equal(mine, theirs) for mine, theirs in pairs)


def earliest(pair: tuple[Sequence[Tensor], Sequence[Tensor]]) -> tuple[int, int]:
    """Return the first token, and its first layer, at which a request's K/V [L, 2, T, H, D] differ."""
    (one, _), (other, _) = pair
    unlike_LT = (one != other).any(-1).any(-1).any(1)
    tokens = unlike_LT.any(0).nonzero()
    if not len(tokens):
        return -1, -1
    token = int(tokens[0])
    return token, int(unlike_LT[:, token].nonzero()[0])


def named(cell: Cell) -> str:
    """A cell in words."""
    flags = [name for name in (*FLAGS, "mixed", "turns") if getattr(cell, name)]
    return ", ".join([f"width {cell.width}", f"{cell.requests} at once", f"chunks of {cell.chunk}", *flags])


def _known(specs: Sequence[RequestSpec], texts: Sequence[Text]) -> dict[str, list[int]]:
    """Prompt and text of each request."""
    return {spec.request_id: [*spec.token_ids, *text.tokens] for spec, text in zip(specs, texts, strict=True)}


def _as_prompt(spec: RequestSpec, tokens: Sequence[int]) -> RequestSpec:
    """A request whose prompt is another's prompt and text."""
    return replace(begun(spec, 1), token_ids=tuple(tokens), prompt_length=len(tokens))


SHORT = replace(
    FULL,
    rig=replace(FULL.rig, slots=32, widths=(1, 4, 16), chunks=(32, 512, 2048)),
    sizes=LoadSizes(96, PROMPTS[:4]),
    loads={1: 4, 8: 32, 32: 64},
    chunks=(512, 2048),
    kv_requests=4,
    kv_tokens=300,
)
"""Fewer texts of a model whose start takes its time."""


def round_rows(
    tiny: bool,
    exact: str = "fallback",
    short: bool = False,
    shape: str = "",
    activations: str = "auto",
    kv_dtype: str = "auto",
    experts: str = "",
    layers: int = 0,
    weights: str = "bf16",
) -> Iterator[Row]:
    """One row for each cell, for a sample that is run alone, and for K/V; the last is of all texts.

    Weights of another format than bf16 are multiplied by their codes where a round is small, and by their numbers
    where it is large.
    """
    plan = TINY if tiny else SHORT if short else FULL
    products: Choice = "false" if weights == "bf16" else "true"
    rig = replace(plan.rig, activations=activations, kv_dtype=kv_dtype, changes=FORMATS[weights], products=products)
    plan = replace(plan, rig=replace(rig, shape=SHAPES[shape]) if shape else rig)
    if experts:
        plan = of_experts(plan, experts, tiny, layers)
    yield from plan_rows(plan, plan.cells, exact)


def of_experts(plan: Plan, name: str, tiny: bool, layers: int = 0) -> Plan:
    """The same with a mixture of so many layers, 0: few; a tiny one has its family alone. Windows get long prompts."""
    shape, family, changes = mixture(name, layers)
    own = (plan.rig.shape, {}) if tiny else (shape, changes)
    changes = {**plan.rig.changes, **own[1]}  # of the weights' format, too
    sizes = replace(plan.sizes, prompts=PROMPTS) if family in SLIDING and not tiny else plan.sizes
    return replace(plan, sizes=sizes, rig=replace(plan.rig, shape=own[0], family=family, changes=changes))


def plan_rows(plan: Plan, cells: Sequence[Cell], exact: str) -> Iterator[Row]:
    """The same of any plan and cells."""
    start = time.perf_counter()
    texts: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        worker = build(plan.rig, Path(folder), exact)
        _tell(f"started in {time.perf_counter() - start:.0f} s, {worker.budget.blocks} blocks")
        before = worker.runner.graphs()
        comparison = Comparison(worker, plan)
        _tell(f"texts of plain rounds after {time.perf_counter() - start:.0f} s")
        alone = Cell(1, 1, plan.chunks[-1]), min(ALONE, plan.most)
        for cell, count in [alone, *((cell, plan.loads[cell.requests]) for cell in cells)]:
            texts.append(comparison.cell(cell, count))
            yield texts[-1]
        yield from comparison.kv_rows()
        memory = memory_of(worker) if plan.rig.device == "cuda" else {}
        exactness, after = worker.exactness, worker.runner.graphs()
        worker.close()
    captured = after.captures + after.recaptures - before.captures - before.recaptures
    tokens, seconds = sum(row["tokens"] for row in texts), round(time.perf_counter() - start, 1)
    yield exact_row(
        "all texts", *_sums(texts), tokens=tokens, seconds=seconds, shapes=exactness.counts, captured=captured, **memory
    )


def memory_of(worker: Worker) -> dict[str, int]:
    """Bytes of the GPU that are in use, by this process alone, beside those that its part of the plan says."""
    budget = worker.budget
    return {"planned": budget.total_bytes - budget.terms.fixed.get("drafter", 0), "held": used_bytes()}


def _sums(rows: Sequence[Row]) -> tuple[int, int]:
    return sum(row["exact"]["streams"] for row in rows), sum(row["exact"]["differ"] for row in rows)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
