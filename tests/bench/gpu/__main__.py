"""python -m tests.bench.gpu STAGE...: what a pair does on a GPU; a table, then one JSON line, a file a stage in --save.

`steps` and `prefill` time captured steps in one process, `burst` many prompts at once. `vllm`, `chosen`, `gap`,
`gateway` and the profiles load one pair of processes, which they share when they follow one another; `chosen` is `vllm`
with widths left to the target; `contexts` loads one with room for few long requests. A stage that --save holds of this
commit is skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.bench.gpu import steps
from tests.bench.gpu.adaptive import Budget, adaptive_rows
from tests.bench.gpu.burst import burst_rows
from tests.bench.gpu.contexts import context_rows
from tests.bench.gpu.floors import against_products, explain
from tests.bench.gpu.gap import gap_rows
from tests.bench.gpu.gateway import gateway_rows
from tests.bench.gpu.held import held_rows
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.prefill import prefill_rows
from tests.bench.gpu.results import Results
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.scattered import ROUTES
from tests.bench.gpu.shapes import FORMATS, MIXTURES, PROFILES, SHAPES, mixture
from tests.bench.gpu.vllm import chosen_rows, vllm_rows

Row = dict[str, Any]
SERVED = ("vllm", "chosen", "gap", "gateway", *PROFILES)
LONG = "contexts"
STAGES = ("steps", "prefill", "burst", *SERVED, LONG, "transformers")
QUICK: dict[str, Any] = {"concurrency": [1, 8], "lengths": [512, 8192], "alternations": 3, "seconds": 40.0}
FULL: dict[str, Any] = {
    "concurrency": [1, 8, 32, 64, 128],
    "lengths": [512, 2048, 8192, 32768],
    "alternations": 8,
    "seconds": 130.0,
}


def main() -> int:
    """Runs the chosen stages."""
    chosen = _arguments()
    results = Results(chosen.save, chosen.shape)
    for pair, stages in groupby(chosen.stages, _pair_of):
        if pair:
            _served(chosen, list(stages), results)
            continue
        for stage in stages:
            if not results.has(stage):
                results.add(stage, [row | {"gpu_sharing": "alone"} for row in ALONE[stage](chosen)])
    results.show()
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", default=list(STAGES), help=", ".join(STAGES))
    parser.add_argument("--size", choices=("quick", "full"), default="quick", help="defaults of what follows")
    parser.add_argument("--shape", choices=sorted({*SHAPES, *MIXTURES}), default="qwen3-4b")
    parser.add_argument("--layers", type=int, default=0, help="of a mixture of experts; 0: few")
    parser.add_argument("--weights", choices=sorted(FORMATS), default="bf16", help="format of a mixture's files")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--memory-gb", type=float, default=56.0, help="of the pair, weights included")
    parser.add_argument("--save", default="")
    parser.add_argument("--buckets", type=int, nargs="*", default=[1, 8], help="of steps")
    parser.add_argument("--contexts", type=int, nargs="*", default=[512, 4096, 32000], help="of steps")
    parser.add_argument("--served-contexts", type=int, nargs="*", default=[512, 4096, 16384, 32000])
    parser.add_argument("--long-memory-gb", type=float, default=84.0, help="of the pair of contexts")
    parser.add_argument("--lengths", type=int, nargs="*", help="prompts of prefill")
    parser.add_argument("--concurrency", type=int, nargs="*", help="of vllm and the profiles")
    parser.add_argument(
        "--plain", type=int, nargs="*", default=[1, 8], help="concurrencies of plain rows and of gateway"
    )
    parser.add_argument("--widths", type=int, nargs="*", default=[1, 4, 6, 8, 12, 16])
    parser.add_argument("--handoffs", nargs="*", choices=("mps", "timeslice", "host"), default=["mps"])
    parser.add_argument("--short-blocks", action="store_true", help="a draft's block is as wide as the round")
    parser.add_argument("--drafter-weights", choices=["dtype", "int8"], default="dtype", help="of its products")
    parser.add_argument("--routes", choices=sorted(ROUTES), default="own", help="how rows of a mixture choose experts")
    parser.add_argument("--slots", type=int, default=0, help="0: the highest concurrency")
    parser.add_argument("--tokens", type=int, default=128, help="output of a stream")
    parser.add_argument("--alternations", type=int)
    parser.add_argument("--seconds", type=float, help="of a profile; fewer alternations, at least two, are done then")
    parser.add_argument("--gap-prompt", type=int, default=8192)
    parser.add_argument("--burst", type=int, default=128, help="prompts at once")
    parser.add_argument("--burst-prompt", type=int, default=512)
    chosen = parser.parse_args()
    if unknown := set(chosen.stages) - set(STAGES):
        parser.error(f"unknown stages: {', '.join(sorted(unknown))}")
    for name, value in (FULL if chosen.size == "full" else QUICK).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    return chosen


def _pair_of(stage: str) -> str:
    """Which pair of processes a stage loads, if any."""
    return LONG if stage == LONG else "usual" if stage in SERVED else ""


def _served_settings(chosen: argparse.Namespace, stages: Sequence[str]) -> RigSettings:
    if LONG in stages:
        longest = max(chosen.served_contexts) + 2 * chosen.tokens
        settings = _rig_settings(chosen, max(chosen.plain), chosen.widths, longest)
        return replace(settings, memory_bytes=int(chosen.long_memory_gb * (1 << 30)))
    context = chosen.gap_prompt + 64 if "gap" in stages else 2048
    return _rig_settings(chosen, chosen.slots or max(chosen.concurrency), chosen.widths, context)


def _rig_settings(chosen: argparse.Namespace, slots: int, widths: Sequence[int], context: int) -> RigSettings:
    memory = int(chosen.memory_gb * (1 << 30))
    chunk = 0 if chosen.shape == "qwen3-4b" else 64
    widths = tuple(widths)
    if chosen.shape in SHAPES:
        return RigSettings(SHAPES[chosen.shape], chosen.device, chosen.dtype, slots, widths, context, memory, chunk)
    shape, family, changes = mixture(chosen.shape, chosen.layers)
    changes |= FORMATS[chosen.weights]
    return RigSettings(shape, chosen.device, chosen.dtype, slots, widths, context, memory, chunk, family, changes)


def _steps(chosen: argparse.Namespace) -> list[Row]:
    buckets, contexts = tuple(chosen.buckets), tuple(chosen.contexts)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(_rig_settings(chosen, max(buckets), chosen.widths, max(contexts) + 2048), Path(folder))
        bandwidth = steps.read_bandwidth(rig)
        same = [steps.capture_equals_eager(rig, bucket, context) for bucket in buckets for context in contexts]
        rows: list[Row] = [{"step": "read", "tb_s": round(bandwidth / 1e12, 3)}]
        rows.append({"step": "capture equals eager", "cases": len(same), "equal": sum(same)})
        rows += steps.verify_rows(rig, buckets, contexts, bandwidth)
        rows += steps.sampled_rows(rig, buckets, contexts[0])
        rows += steps.draft_rows(rig, buckets, contexts, bandwidth)
        counts = sorted({1, 16, *(bucket * chosen.widths[-1] for bucket in buckets)})
        rows += steps.product_rows(rig, counts)
        rows += against_products(rows, rig.settings.shape)
        graphs = rig.worker.runner.graphs()
        rows.append({"step": "graphs", "captures": graphs.captures, "recaptures": graphs.recaptures})
        return rows


def _prefill(chosen: argparse.Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(_rig_settings(chosen, 1, (1,), max(chosen.lengths) + 2048), Path(folder))
        return prefill_rows(rig, chosen.lengths)


def _burst(chosen: argparse.Namespace) -> list[Row]:
    """With the slots and widths whose memory lets packs be largest."""
    settings = _rig_settings(chosen, chosen.burst, (1, chosen.widths[-1]), chosen.burst_prompt + 16)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(settings, Path(folder))
        return burst_rows(rig, chosen.burst, chosen.burst_prompt)


def _transformers(chosen: argparse.Namespace) -> list[Row]:
    from tests.bench.gpu.others import transformers_rows  # takes seconds to import

    return transformers_rows(SHAPES[chosen.shape], chosen.device, chosen.dtype, chosen.plain, chosen.tokens)


ALONE = {"steps": _steps, "prefill": _prefill, "burst": _burst, "transformers": _transformers}


def _served(chosen: argparse.Namespace, stages: Sequence[str], results: Results) -> None:
    measured = results.rows("steps") if results.has("steps") else []
    for handoff in chosen.handoffs:
        names = {stage: stage if handoff == "mps" else f"{stage}_{handoff}" for stage in stages}
        left = [stage for stage in stages if not results.has(names[stage])]
        if not left:
            continue
        with Mps(handoff == "mps" and chosen.device == "cuda") as environment:
            how = "host" if handoff == "host" else "auto"
            options = PairOptions(how, environment, chosen.short_blocks, chosen.drafter_weights, routes=chosen.routes)
            settings = _served_settings(chosen, left)
            with (
                tempfile.TemporaryDirectory(prefix="pl") as folder,
                ServedPair(settings, Path(folder), options) as pair,
            ):
                for stage in left:
                    rows = _described(pair, asyncio.run(_loaded(chosen, stage, pair)))
                    results.add(names[stage], explain(rows, measured, settings.shape))
                if LONG not in left:
                    sharing = {"gpu_sharing": pair.describe().gpu_sharing}
                    held = [row | sharing for row in held_rows(pair)]
                    results.add("memory" if handoff == "mps" else f"memory_{handoff}", held)


async def _loaded(chosen: argparse.Namespace, stage: str, pair: ServedPair) -> list[Row]:
    if stage == "vllm":
        return await vllm_rows(pair, chosen.concurrency, chosen.plain, chosen.tokens)
    if stage == "chosen":
        return await chosen_rows(pair, chosen.concurrency, chosen.tokens)
    if stage == LONG:
        return await context_rows(pair, chosen.served_contexts, chosen.plain, chosen.tokens)
    if stage == "gap":
        return await gap_rows(pair, chosen.gap_prompt)
    if stage == "gateway":
        return await gateway_rows(pair, chosen.plain, chosen.tokens)
    budget = Budget(chosen.alternations, chosen.seconds, chosen.tokens)
    return await adaptive_rows(pair, stage, chosen.concurrency, budget)


def _described(pair: ServedPair, rows: list[Row]) -> list[Row]:
    """Rows with what holds for the whole pair."""
    description = pair.describe()
    graphs = description.graphs
    facts = {
        "gpu_sharing": description.gpu_sharing,
        "handoff_mode": description.handoff_mode,
        "drafter_weights": pair.options.drafter_weights,
        "routes": pair.options.routes,
        "draft_block": "as wide as the round" if pair.options.short_blocks else pair.settings.shape.block_size,
        "captures": graphs.captures,
        "capture_s": round(graphs.capture_seconds, 1),
        "graphs_hold_mib": graphs.held_bytes >> 20,
        "captures_after_warmup": graphs.captures - pair.captured,
        "recaptures": graphs.recaptures,
    }
    return [row | facts for row in rows]


if __name__ == "__main__":
    sys.exit(main())
