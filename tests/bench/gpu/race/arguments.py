"""Arguments of the race, and what it needs."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from services.target.settings import THROUGHPUT
from tests.bench.gpu.race.plan import CLOSED_S, GROUPS, OUTS, PARTS, SCHEDULES, requests_of
from tests.bench.gpu.shapes import FORMATS, RACED, SHAPES
from tests.bench.race import FIRST_SHAPE, RESULTS


def arguments(description: str) -> argparse.Namespace:
    """What the command line says; ends the process where something is missing."""
    parser = argparse.ArgumentParser(description=description)
    _what(parser)
    _how(parser)
    chosen = parser.parse_args()
    if not (chosen.plan or chosen.vllm or chosen.sglang):
        parser.error("--vllm (VLLM= of make race) or --sglang: a folder of a peer is needed")
    for name, folder in (("--vllm", chosen.vllm), ("--sglang", chosen.sglang)):
        if folder and not Path(folder).is_dir():
            parser.error(f"{name}: {folder!r} is no folder")
    try:
        requests_of(chosen.group or GROUPS[0])
    except ValueError as error:
        parser.error(f"--group: {error}")
    if not (chosen.plan or chosen.tiny) and shutil.which("nvidia-smi") is None:
        parser.error("there is no nvidia-smi here: the race needs an NVIDIA GPU")
    return chosen


def _what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", help="requests at once, as 1,8; without it 1,8 and 32 and 64,128, one by one")
    parser.add_argument("--shape", choices=sorted(SHAPES | RACED), default=FIRST_SHAPE, help="of the model")
    parser.add_argument("--weights", choices=sorted(FORMATS), default="bf16", help="format of both sides' target")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="all by default")
    parser.add_argument("--drafts", type=int, nargs="*", default=(), help="the only K; all of each load's without")
    parser.add_argument("--outs", type=int, nargs="+", default=OUTS, help="tokens of outputs")
    parser.add_argument("--profiles", nargs="*", choices=sorted(SCHEDULES), default=["P65"], help="of acceptance")
    parser.add_argument("--closed", type=float, default=CLOSED_S, help="seconds of a closed loop")
    parser.add_argument("--without-fixed", action="store_true", help="leave out paceline at fixed K")
    parser.add_argument("--once", action="store_true", help="leave out paceline's second leg")
    parser.add_argument("--drafter-weights", choices=["dtype", "int8"], default="dtype", help="of paceline's drafter")
    parser.add_argument(
        "--short-blocks", action="store_true", help="paceline drafts blocks of K + 1 rows, as vLLM does"
    )
    parser.add_argument("--prefer", default=THROUGHPUT, help="throughput or latency: of paceline's target")
    parser.add_argument("--flags", default="", help="further flags of paceline's target, in one word")
    parser.add_argument("--plan", action="store_true", help="print the legs and their seconds, and run nothing")


def _how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vllm", default="", help="folder with vLLM's packages, which PYTHONPATH is set to")
    parser.add_argument("--vllm-python", default=sys.executable, help="what runs them")
    parser.add_argument("--vllm-memory", type=float, default=0.6, help="its share of the GPU's memory")
    parser.add_argument("--sglang", default="", help="folder with SGLang's packages; it runs the flat profile only")
    parser.add_argument("--memory-gb", type=float, default=56.0, help="of paceline's pair, weights included")
    parser.add_argument("--gpu", default="0", help="index or UUID, for nvidia-smi")
    parser.add_argument("--save", default=str(RESULTS), help="folder of results")
    parser.add_argument("--tiny", action="store_true", help="on a CPU, with a model of no use, to see that it runs")
