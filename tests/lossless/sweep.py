"""`python -m tests.lossless.sweep`: every case of trees and of chains of any lengths, by as many processes as asked.

What `pytest --full` does of them in one process. Prints a line for each part that is done, and for each kind one of
JSON. Exits 1 on a mismatch.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context

import torch

from tests.lossless import test_nodes, test_ragged
from tests.lossless.gate import Case, Tally, run_gate
from tests.lossless.pairs import made_up_pair

KINDS = {"nodes": test_nodes, "ragged": test_ragged}
AT_ONCE = 4
"""Cases of a part: plain decoding comes once for each part."""


def main() -> int:
    """Runs every case of the kinds; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lossless.sweep")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--prompts", type=int, default=test_nodes.PROMPTS_OF_ALL)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--parts", type=int, default=0, help="no more than so many of each kind")
    asked = parser.parse_args()
    start, tallies = time.monotonic(), {kind: Tally() for kind in asked.kinds}
    with ProcessPoolExecutor(asked.jobs, get_context("spawn"), one_thread) as workers:
        parts = {
            workers.submit(run_part, kind, cases, asked.prompts): kind
            for kind in asked.kinds
            for cases in list(parts_of(list(KINDS[kind].every_case(asked.dtype))))[: asked.parts or None]
        }
        for done in as_completed(parts):
            kind, tally = parts[done], done.result()
            tallies[kind].merge(tally)
            said = f"{kind}: {tally.cases} cases more, {tally.tokens} tokens, {tally.mismatches} mismatches"
            print(f"{time.monotonic() - start:6.0f} s {said}", file=sys.stderr, flush=True)
    for kind, tally in tallies.items():
        print(json.dumps({"kind": kind, "dtype": asked.dtype, "prompts": asked.prompts, **asdict(tally)}), flush=True)
    return int(any(tally.mismatches for tally in tallies.values()))


def one_thread() -> None:
    """Of each process, for all have a core."""
    torch.set_num_threads(1)


def parts_of(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Yield a few cases of one temperature at a time."""
    for heat in sorted({case.temperature for case in cases}):
        own = [case for case in cases if case.temperature == heat]
        yield from (own[at : at + AT_ONCE] for at in range(0, len(own), AT_ONCE))


def run_part(kind: str, cases: Sequence[Case], prompts: int) -> Tally:
    """Compares some cases with plain decoding, in this process."""
    return run_gate(made_up_pair(), cases, lambda heat: test_nodes.specs_of(heat, prompts), KINDS[kind].SEED)


if __name__ == "__main__":
    sys.exit(main())
