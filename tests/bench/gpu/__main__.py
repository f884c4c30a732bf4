"""python -m tests.bench.gpu: single steps, then the served pair; a table, then one JSON line, saved with --save."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tests.bench.gpu import steps
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.served import Load, ServedPair, measure
from tests.bench.gpu.shapes import PROFILES, SHAPES, VLLM

Row = dict[str, Any]


def main() -> int:
    """Runs the chosen stages; each leaves its own JSON file in --save."""
    chosen = _arguments()
    results: dict[str, list[Row]] = {}
    for stage in chosen.stages:
        results[stage] = {"steps": _steps, "served": _served}[stage](chosen)
        if chosen.save:
            path = Path(chosen.save) / f"gpu_{stage}.json"
            path.write_text(json.dumps({**_circumstances(chosen), "rows": results[stage]}, indent=1) + "\n")
    for rows in results.values():
        for row in rows:
            print("  ".join(f"{key}={value}" for key, value in row.items() if key != "decode_tok_s_all"))
    print(
        json.dumps(
            {"bench": "gpu", **_circumstances(chosen), "rows": [row for rows in results.values() for row in rows]}
        )
    )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", default=["steps", "served"])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-4b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--contexts", type=int, nargs="*", default=[512, 4096, 32000])
    parser.add_argument("--widths", type=int, nargs="*", default=[16])
    parser.add_argument("--handoffs", nargs="*", default=["mps", "timeslice", "host"])
    parser.add_argument("--schedules", nargs="*", default=["vllm", *PROFILES])
    parser.add_argument("--memory-gb", type=float, default=30.0)
    parser.add_argument("--save", default="")
    return parser.parse_args()


def _rig_settings(chosen: argparse.Namespace, widths: tuple[int, ...], context: int) -> RigSettings:
    shape = SHAPES[chosen.shape]
    memory = int(chosen.memory_gb * (1 << 30))
    chunk = 2048 if chosen.shape == "qwen3-4b" else 64
    return RigSettings(shape, chosen.device, chosen.dtype, chosen.slots, widths, context, memory, chunk)


def _steps(chosen: argparse.Namespace) -> list[Row]:
    most = max(chosen.contexts)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(_rig_settings(chosen, (1, 4, 8, 16), most + 2048), Path(folder))
        bandwidth = steps.copy_bandwidth(rig)
        buckets, contexts = tuple(chosen.concurrency), tuple(chosen.contexts)
        same = [steps.capture_equals_eager(rig, bucket, context) for bucket in buckets for context in contexts]
        rows: list[Row] = [{"step": "copy", "tb_s": round(bandwidth / 1e12, 3)}]
        rows.append({"step": "capture equals eager", "cases": len(same), "equal": sum(same)})
        rows += steps.verify_rows(rig, buckets, contexts, bandwidth)
        rows += steps.sampled_rows(rig, buckets, contexts[0])
        rows += steps.draft_rows(rig, buckets, contexts, bandwidth)
        rows += steps.product_rows(rig, (1, 16, 128))
        rows += steps.prefill_rows(rig, tuple(length for length in (2048, 8192) if length <= most))
        graphs = rig.machine.runner.graphs()
        rows.append({"step": "graphs", "captures": graphs.captures, "recaptures": graphs.recaptures})
        return rows


def _served(chosen: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for handoff in chosen.handoffs:
        with Mps(handoff == "mps") as environment:
            for width in chosen.widths:
                for name in chosen.schedules:
                    rates = VLLM[width] if name == "vllm" else PROFILES[name]
                    rows += _pair(chosen, handoff, width, name, rates, environment)
    return rows


def _pair(
    chosen: argparse.Namespace,
    handoff: str,
    width: int,
    schedule: str,
    rates: tuple[float, ...],
    environment: dict[str, str],
) -> list[Row]:
    settings = _rig_settings(chosen, (1, width), 4096)
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = ServedPair(settings, Path(folder), rates, "host" if handoff == "host" else "auto", environment)
        try:
            pair.wait_ready()
            rows = []
            for concurrency in chosen.concurrency:
                modes = (True, False) if schedule == "vllm" else (True,)
                for speculative in modes:
                    load = Load(concurrency, prompt=min(512, settings.context_limit // 4), speculative=speculative)
                    row = asyncio.run(measure(pair.address, load, settings.shape.vocab))
                    mode = "fixed" if speculative else "plain"
                    rows.append({"system": "paceline", "mode": mode, "schedule": schedule, "k": width - 1, **row})
            description = pair.describe()
            assert description is not None, "the target is gone"
            for row in rows:
                row["handoff_mode"] = description.handoff_mode
                row["recaptures"] = description.graphs.recaptures
            return rows
        finally:
            pair.stop()


def _circumstances(chosen: argparse.Namespace) -> Row:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    versions = {package: metadata.version(package) for package in ("torch", "grpcio", "protobuf")}
    return {
        "device": name,
        "commit": os.environ.get("BENCH_COMMIT", commit.stdout.strip()),
        "versions": versions,
        "command": "python -m tests.bench.gpu " + " ".join(sys.argv[1:]),
        "shape": chosen.shape,
    }


if __name__ == "__main__":
    sys.exit(main())
