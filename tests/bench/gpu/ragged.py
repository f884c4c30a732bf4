"""python -m tests.bench.gpu.ragged: rounds whose requests have chains of any lengths, against chains of one length.

Part `exact` decodes plainly, then by rounds of any lengths with drafts that are partly right, and compares texts and
K/V. Part `speed` serves sequences whose drafts are accepted at rates of their own, in one process, with real steps of
target and drafter, by several policies. Both print a table last.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch

from services.target.core.width import Ragged, Width, order_of
from services.target.device.shapes import PackShape
from services.target.device.steps import kind_of, shape_of
from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from services.target.scheduling.width.width import adaptive_policy
from services.target.settings import TargetSettings
from tests.bench.gpu.rig import ROOM, Rig, RigSettings
from tests.bench.gpu.shapes import QWEN3_8B, SHAPES

WIDTHS, MOST, CONTEXT, SEED = (1, 4, 8, 16), 16, 512, 65
MIXED, ALIKE = (0.93, 0.8, 0.65, 0.45), (0.75,)
"""Chances that a draft is accepted behind those before it, of sequences in turn."""
TOKENS = 48
"""Of each text that is compared."""


def main() -> int:
    """Runs one part; returns 1 where texts or K/V differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.ragged", description=__doc__)
    parser.add_argument("part", choices=("exact", "speed"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", default="qwen3-8b")
    parser.add_argument("--rows", type=int, default=32, help="sequences at once")
    parser.add_argument("--totals", type=int, nargs="+", default=[64, 96, 128, 160, 192, 256, 320, 384])
    parser.add_argument("--grains", type=int, nargs="+", default=[2])
    parser.add_argument("--seconds", type=float, default=7.0)
    parser.add_argument("--tiny", action="store_true", help="little of everything, to see that it runs")
    asked = parser.parse_args()
    if asked.tiny:
        asked.shape, asked.rows, asked.totals, asked.seconds = "tiny", 4, [12, 24, 40], 0.5
    ragged = [Ragged(MOST, total, grain) for total in asked.totals for grain in asked.grains]
    ragged = [one for one in ragged if one.fits(asked.rows)]
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        if asked.part == "exact":
            return exact(asked, ragged, Path(folder))
        speed(asked, ragged, Path(folder))
    return 0


def build(asked: argparse.Namespace, ragged: Sequence[Ragged], folder: Path, rates: tuple[float, ...] = ()) -> Rig:
    """A rig of few layers for `exact`, else of the whole shape, whose rounds are of one bucket or of one sequence."""
    shape, tiny = SHAPES[asked.shape], asked.device == "cpu"
    if not rates and not tiny:
        shape = replace(QWEN3_8B, layers=6, draft_layers=2, taps=(1, 3, 5))
    memory = 1 << 30 if tiny else 110 << 30 if rates else 40 << 30
    settings = RigSettings(
        shape, asked.device, "float64" if tiny else "bfloat16", asked.rows, WIDTHS, CONTEXT + ROOM, memory, CONTEXT
    )
    module = "services.target.build_device"
    buckets = tuple(sorted({1, asked.rows}))
    modes = ("greedy",) if rates else ("greedy", "full")
    with (
        mock.patch("tests.bench.gpu.rig.TargetSettings", partial(TargetSettings, synthetic_acceptance=rates)),
        mock.patch(f"{module}.ragged_rounds", return_value=tuple(ragged)),
        mock.patch(f"{module}.buckets_of", return_value=buckets),
        mock.patch(f"{module}.packs_of", return_value=(PackShape(CONTEXT // 64, 64),)),
        mock.patch("services.target.device.steps.MODES", modes),
    ):
        return Rig(settings, folder)


class Rounds:
    """Rounds of a rig by hand: what a runner does with a plan, without requests."""

    def __init__(self, rig: Rig, rows: int) -> None:
        self.rig, self.rows = rig, rows

    def run(self, width: Width, takes: Sequence[int] = (), mode: str = "greedy") -> tuple[list[int], list[int]]:
        """One round of all sequences; returns what each committed and how many drafts it was offered."""
        settings, steps, graphs = self.rig.pool.settings, self.rig.steps, self.rig.steps.graphs
        shape = shape_of(self.rows, width)
        kind = kind_of(settings, shape, width, CONTEXT + ROOM)
        step = steps.verify(*shape, mode, kind)  # type: ignore[arg-type]
        if step.table is not None:
            step.table.set(range(self.rows), takes)
        graphs.replay((kind, *shape, mode))
        counts, drafted = step.result.count_B.tolist(), step.result.drafted_B.tolist()
        return counts[: self.rows], drafted[: self.rows]


def exact(asked: argparse.Namespace, ragged: Sequence[Ragged], folder: Path) -> int:
    """Compare texts and K/V of plain decoding with those of rounds of any lengths."""
    rig, rows, found = build(asked, ragged, folder), asked.rows, 0
    rounds = Rounds(rig, rows)
    rig.seat(rows, CONTEXT, ROOM)
    for mode in ("greedy", "full"):
        rig.slots.temperature_S[:rows] = 0.8 if mode == "full" else 0.0
        rig.slots.seed_S[:rows] = torch.arange(rows, device=rig.device)
        rig.reset(rows, CONTEXT)
        for _ in range(TOKENS):
            rounds.run(1, mode=mode)
        truth, kept = _said(rig, rows), _kept(rig, rows)
        for width in ragged:
            rig.reset(rows, CONTEXT)
            count = _in_any_lengths(rig, rounds, width, truth, mode)
            texts = int((_said(rig, rows) != truth).any(1).sum())
            apart = (_kept(rig, rows) - kept).abs().flatten(1).amax(1)
            cached = int((apart > (1e-9 if rig.device.type == "cpu" else 0)).sum())  # a CPU promises no bits
            found += texts + cached
            print(f"{mode} {width}: {count} rounds, {texts} of {rows} texts differ, {cached} of K/V", flush=True)
    return int(bool(found))


def _in_any_lengths(rig: Rig, rounds: Rounds, width: Ragged, truth: torch.Tensor, mode: str) -> int:
    """Decode with drafts of which some are wrong, in lengths drawn anew each time; return how many rounds it took."""
    pick, rows, wrong = random.Random(SEED), rounds.rows, 7
    told, lengths, count = truth.tolist(), [0] * rounds.rows, 0
    while min(lengths) < TOKENS:
        drafts = [(line[at:] + [0] * MOST)[: MOST - 1] for line, at in zip(told, lengths, strict=True)]
        for line in drafts:
            line[pick.randrange(MOST - 1)] = wrong
        rig.pool.mailbox_SK[:rows, : MOST - 1] = torch.tensor(drafts, device=rig.device, dtype=torch.int32)
        counts = [1] * rows
        for place in pick.sample(range(rows), rows):
            counts[place] += min(pick.randrange(MOST // width.grain), width.pieces - sum(counts))
        committed, _ = rounds.run(width, [width.grain * each for each in counts], mode)
        lengths = [one + more for one, more in zip(lengths, committed, strict=True)]
        count += 1
    return count


def _said(rig: Rig, rows: int) -> torch.Tensor:
    """The tokens behind the contexts."""
    return rig.slots.history_SC[:rows, CONTEXT + 1 : CONTEXT + 1 + TOKENS].clone()


def _kept(rig: Rig, rows: int) -> torch.Tensor:
    """Keys and values of the positions of those tokens but the last, and the draft context's, by sequence."""
    size, table = rig.pool.settings.block_size, rig.pool.state.block_table_SN[:rows].long()
    places = torch.arange(CONTEXT, CONTEXT + TOKENS - 1, device=rig.device)
    at = table[:, places // size] * size + places % size
    parts = [kv.flatten(2, 3)[:, :, at].movedim(2, 0).flatten(1) for kv in (*rig.pool.states.paged, rig.pool.draft_kv)]
    return torch.cat(parts, 1)


def speed(asked: argparse.Namespace, ragged: Sequence[Ragged], folder: Path) -> None:
    """Print tokens a second of each policy, for sequences of several rates and of one."""
    rig = build(asked, ragged, folder, tuple(0.5**place for place in range(1, MOST)))
    costs = rig.worker.costs()
    bucket, every = asked.rows, tuple(sorted((*WIDTHS, *ragged), key=order_of))
    for width in every:
        print(f"verify of {bucket}, {width!r}: {costs[bucket, width]:.0f} us", flush=True)
    drafter = rig.drafter()
    for name, chances in (("mixed", MIXED), ("alike", ALIKE)):
        best = 0.0
        for told, policy in _policies(bucket, every, costs):
            tokens, micros, rows, usual = _served(rig, drafter, policy, chances, asked)
            best = max(best, tokens) if told != "ragged" else best
            print(
                f"{name:6} {told:9} {tokens:8.0f} tok/s {micros:8.0f} us a round {rows:6.1f} rows, mostly {usual}; "
                f"{tokens / best:.3f} of the best before",
                flush=True,
            )


def _policies(bucket: int, every: Sequence[Width], costs: object) -> Iterator[tuple[str, WidthPolicy]]:
    micros = {(bucket, width): costs[bucket, width] for width in every}  # type: ignore[index]
    for width in WIDTHS[1:]:
        yield f"fixed {width}", FixedWidth(width)
    yield "adaptive", adaptive_policy(WIDTHS, (bucket,), micros)
    yield "ragged", adaptive_policy(every, (bucket,), micros)


def _served(
    rig: Rig, drafter: object, policy: WidthPolicy, chances: Sequence[float], asked: argparse.Namespace
) -> tuple[float, float, float, Width]:
    """Tokens a second, microseconds and rows of a round, and the usual width, behind as long a time of learning."""
    bucket, rounds = asked.rows, Rounds(rig, asked.rows)
    rates = [[chances[slot % len(chances)] ** place for place in range(1, MOST)] for slot in range(bucket + 1)]
    for step in rig.steps._verify.values():
        if step._synthetic is not None:
            table = step._synthetic.rates_SK
            table.copy_(torch.tensor(rates)[:, : table.shape[1]])
    rig.seat(bucket, CONTEXT, ROOM)
    rig.worker.runner.publish()
    kept = rig.pool.mailbox_SK.clone(), rig.pool.tag_S3.clone()
    for slot in range(bucket):
        policy.join(slot, None, None)
    context, seen = bucket * CONTEXT, dict[Width, int]()
    tokens = count = rows = 0
    begin = time.perf_counter()
    middle = begin + asked.seconds / 2
    while (now := time.perf_counter()) < begin + asked.seconds:
        if now < middle:
            tokens = count = rows = 0
            seen, since = {}, now
        if context > bucket * (CONTEXT + ROOM // 2):
            rig.reset(bucket, CONTEXT)
            context = bucket * CONTEXT
        width = policy.choose(bucket, bucket, context)
        takes = policy.takes(width, range(bucket)) if isinstance(width, Ragged) else (int(width),) * bucket
        if width != 1:
            drafter.replay((bucket, MOST, False))  # type: ignore[attr-defined]
            rig.pool.mailbox_SK.copy_(kept[0])
            rig.pool.tag_S3.copy_(kept[1])
        committed, drafted = rounds.run(width, takes)
        micros = (time.perf_counter() - now) * 1e6
        for slot, (made, offered) in enumerate(zip(committed, drafted, strict=True)):
            policy.observe(slot, offered, made - 1, False)
        policy.landed(bucket, width, sum(committed), micros, context)
        context += sum(committed)
        tokens, count, rows = tokens + sum(committed), count + 1, rows + sum(takes)
        seen[width] = seen.get(width, 0) + 1
    took = time.perf_counter() - since
    return tokens / took, took / count * 1e6, rows / count, max(seen, key=seen.__getitem__)


if __name__ == "__main__":
    sys.exit(main())
