"""`python -m tests.lossless`: the whole gate; prints one JSON line and exits 1 on a mismatch."""

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from tests.lossless.gate import (
    DTYPES,
    FAMILIES,
    FAMILY_PROPOSERS,
    HYBRIDS,
    NODE_PROPOSERS,
    PROPOSERS,
    Tally,
    run_hybrid_part,
    run_part,
)
from tests.lossless.pairs import Pair, made_up_pair

EMBEDDED = Path("models/embedded")


def main() -> int:
    """Runs every case; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lossless")
    parser.add_argument("--target", type=Path, default=EMBEDDED / "target")
    parser.add_argument("--drafter", type=Path, default=EMBEDDED / "drafter")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=20261)
    asked = parser.parse_args()
    report = _run(_pair(asked), asked)
    print(json.dumps(report))
    return 0 if report["mismatches"] == 0 else 1


def _pair(asked: argparse.Namespace) -> Pair:
    return Pair(asked.target, asked.drafter) if (asked.target / "config.json").exists() else made_up_pair()


def _run(pair: Pair, asked: argparse.Namespace) -> dict[str, object]:
    start, tally = time.monotonic(), Tally()
    gates = [
        (pair, (*PROPOSERS, *NODE_PROPOSERS)),
        *((made_up_pair(family=family), FAMILY_PROPOSERS) for family in FAMILIES),
    ]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as workers:
        parts = [
            workers.submit(run_part, each, proposers, dtype, temperature, asked.prompts, asked.tokens, asked.seed)
            for each, proposers in gates
            for dtype in DTYPES
            for temperature in (0.0, 0.8)
        ]
        parts += [
            workers.submit(run_hybrid_part, family, dtype, temperature, asked.prompts, asked.tokens, asked.seed)
            for family, dtype, temperature in product(HYBRIDS, DTYPES, (0.0, 0.8))
        ]
        for part in parts:
            tally.merge(part.result())
    passed = tally.mismatches == 0
    return {
        "name": "test-lossless",
        "passed": tally.cases if passed else 0,
        "failed": 0 if passed else tally.cases,
        "skipped": 0,
        "seed": asked.seed,
        "model": str(pair.target) if pair.target == asked.target else "made up",
        "families": [*FAMILIES, *HYBRIDS],
        "prompts": asked.prompts,
        "cases": tally.cases,
        "tokens": tally.tokens,
        "mismatches": tally.mismatches,
        "excused": tally.excused,
        "tau": round(tally.tokens / max(tally.rounds, 1), 3),
        "failures": tally.failures[:10],
        "seconds": round(time.monotonic() - start, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
