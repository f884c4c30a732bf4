"""python -m tests.bench.gpu.exact STAGE: whether texts and kernels are exact; a table, and a JSON file in --save.

The exit status is 1 when anything differs. --tiny takes a shape and a load that a CPU manages, and saves nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.gpu.exact.cost import cost_rows
from tests.bench.gpu.exact.kernels import kernel_rows
from tests.bench.gpu.exact.report import conclude
from tests.bench.gpu.exact.rounds import round_rows
from tests.bench.gpu.shapes import FORMATS, MIXTURES, SHAPES

RESULTS = "tests/bench/results"


def main() -> int:
    """Runs one stage."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.exact", description=__doc__)
    parser.add_argument("stage", choices=sorted(STAGES))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-4b", help="of kernels and rounds")
    parser.add_argument("--save", default=None, help=f"folder of the JSON file; {RESULTS} unless --tiny")
    parser.add_argument("--only", default="", help="of kernels: what a name must contain")
    parser.add_argument("--mps", choices=("auto", "true", "false"), help="auto for pair, false for kills")
    parser.add_argument("--hybrid", action="store_true", help="of pair and kills: models/embedded-hybrid")
    parser.add_argument(
        "--exact", choices=("fallback", "strict", "off"), default="fallback", help="of rounds: the check"
    )
    parser.add_argument("--short", action="store_true", help="of rounds: fewer of them")
    parser.add_argument("--activations", choices=("auto", "int8", "fp8"), default="auto", help="of rounds")
    parser.add_argument("--kv-dtype", choices=("auto", "int8"), default="auto", help="of rounds")
    parser.add_argument("--weights", choices=sorted(FORMATS), default="bf16", help="of rounds: a target's format")
    parser.add_argument("--experts", choices=sorted(MIXTURES), default="", help="of rounds: few layers of a mixture")
    parser.add_argument("--layers", type=int, default=0, help="of rounds of a mixture: so many instead")
    parser.add_argument("--beside", type=int, default=0, help="of rounds: so many processes do the same on the GPU")
    parser.add_argument("--against", type=Path, help="of cost: a checkout of the commit before")
    chosen = parser.parse_args()
    if chosen.stage == "cost" and not chosen.against:
        parser.error("cost needs --against")
    chosen.save = chosen.save if chosen.save is not None else "" if chosen.tiny else RESULTS
    chosen.shape = "tiny" if chosen.tiny else chosen.shape
    chosen.suffix = "-hybrid" if chosen.hybrid else ""
    with others(chosen.beside):
        return STAGES[chosen.stage](chosen)


@contextmanager
def others(count: int) -> Iterator[None]:
    """Run this command in so many processes more, which share the GPU by slices of time; what they find is theirs."""
    command = [sys.executable, "-m", "tests.bench.gpu.exact", *sys.argv[1:], "--beside", "0", "--save", ""]
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def _kernels(chosen: argparse.Namespace) -> int:
    device, dtype = ("cpu", "float32") if chosen.tiny else ("cuda", "bfloat16")
    return conclude("kernels", chosen.shape, kernel_rows(device, dtype, chosen.shape, chosen.only), chosen.save)


def _cost(chosen: argparse.Namespace) -> int:
    rows, passed = cost_rows(chosen.against, chosen.tiny)
    return conclude("cost", chosen.shape, rows, chosen.save, passed)


def _rounds(chosen: argparse.Namespace) -> int:
    eight = {"activations": chosen.activations, "kv_dtype": chosen.kv_dtype}
    name = "".join(f"_{one}_{kind}" for one, kind in eight.items() if kind != "auto")
    name += "" if chosen.weights == "bf16" else f"_{chosen.weights}"
    rows = round_rows(
        chosen.tiny,
        chosen.exact,
        chosen.short,
        "" if chosen.tiny else chosen.shape,
        activations=chosen.activations,
        kv_dtype=chosen.kv_dtype,
        experts=chosen.experts,
        layers=chosen.layers,
        weights=chosen.weights,
    )
    return conclude(f"rounds{name}", chosen.experts or chosen.shape, rows, chosen.save)


def _pair(chosen: argparse.Namespace) -> int:
    from tests.bench.gpu.exact.served import rows_of_pair  # imports Ray

    rows = rows_of_pair(chosen.tiny, chosen.hybrid, chosen.mps or "auto")
    return conclude(f"pair{chosen.suffix}", f"embedded{chosen.suffix}", rows, chosen.save)


def _kills(chosen: argparse.Namespace) -> int:
    from tests.bench.gpu.exact.served import rows_of_kills  # imports Ray

    rows, passed = rows_of_kills(chosen.tiny, chosen.hybrid, chosen.mps or "false")
    return conclude(f"kills{chosen.suffix}", f"embedded{chosen.suffix}", rows, chosen.save, passed)


STAGES = {"cost": _cost, "kernels": _kernels, "kills": _kills, "pair": _pair, "rounds": _rounds}

if __name__ == "__main__":
    sys.exit(main())
