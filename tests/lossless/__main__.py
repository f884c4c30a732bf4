"""`python -m tests.lossless`: the whole gate; prints one JSON line and exits 1 on a mismatch."""

import argparse
import json
import sys
import time
from pathlib import Path

from services.common.model import read_target_config
from tests.lossless.gate import DTYPES, Case, arms, make_specs, run_gate
from tests.lossless.pairs import Pair, made_up_pair

EMBEDDED = Path("models/embedded")
PROPOSERS = ("dflash", "ngram", "adversarial", "perfect")


def main() -> int:
    """Runs every case; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lossless")
    parser.add_argument("--target", type=Path, default=EMBEDDED / "target")
    parser.add_argument("--drafter", type=Path, default=EMBEDDED / "drafter")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=20261)
    asked = parser.parse_args()
    report = _run(_pair(asked), asked.prompts, asked.tokens, asked.seed)
    print(json.dumps(report))
    return 0 if report["mismatches"] == 0 else 1


def _pair(asked: argparse.Namespace) -> Pair:
    return Pair(asked.target, asked.drafter) if (asked.target / "config.json").exists() else made_up_pair()


def _run(pair: Pair, prompts: int, tokens: int, seed: int) -> dict[str, object]:
    vocab = read_target_config(pair.target).vocab_size
    start = time.monotonic()
    cases: list[Case] = []
    for dtype in DTYPES:
        for temperature in (0.0, 0.8):
            cases += arms(dtype, temperature, PROPOSERS, (4, 8))
    tally = run_gate(pair, cases, lambda temperature: make_specs(vocab, prompts, tokens, temperature, seed))
    passed = tally.mismatches == 0
    return {
        "name": "test-lossless",
        "passed": tally.cases if passed else 0,
        "failed": 0 if passed else tally.cases,
        "skipped": 0,
        "seed": seed,
        "model": str(pair.target) if EMBEDDED in pair.target.parents else "made up",
        "prompts": prompts,
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
