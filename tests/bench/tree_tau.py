"""python -m tests.bench.tree_tau: tokens a round of trees and of chains, as served on a CPU, for drafters of one pair.

The target writes once by plain decoding, and rounds of every drafter are replayed over that with the noise of the
request's own draws: served rounds are those (`tests/lossless/test_served_tau.py`). Prompts are shared out to processes.
"""

import argparse
import json
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from services.drafter.proposers.build import in_int8
from services.drafter.settings import DrafterSettings
from tests.bench.nodes_offline import SIZES, Pair, read_pair, write
from tests.bench.served_replay import ServedReplay

TEMPERATURES = (0.0, 0.8)
Key = tuple[str, float, str]
"""A drafter, a temperature, and what is counted."""


def counted(pair: Pair, drafters: Sequence[Path], tokens: int, nodes: int, calibrated: bool) -> Counter[Key]:
    """Tokens of the answers, and rounds by drafter: of trees, and of chains of as many rows and of eight."""
    torch.set_num_threads(1)
    found: Counter[Key] = Counter()
    eight = in_int8(DrafterSettings(proposer="none"))
    replays = {str(drafter): ServedReplay(pair.target, drafter, eight, calibrated) for drafter in drafters}
    for temperature in TEMPERATURES:
        for text in write(pair, temperature, tokens):
            for name, replay in replays.items():
                found[name, temperature, "tokens"] += len(text.ids) - 1 - text.start
                found[name, temperature, "tree"] += replay.tree_rounds(text, nodes)
                found[name, temperature, "chain"] += replay.rounds(text, 7)
    return found


def main() -> None:
    """Prints a line for each drafter and temperature."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tree_tau", description=__doc__)
    parser.add_argument("--pair", choices=SIZES, default="smollm2")
    parser.add_argument("--drafters", type=Path, nargs="+", help="default: the pair's own")
    parser.add_argument("--prompts", type=int, default=66)
    parser.add_argument("--tokens", type=int, default=256, help="most of an answer")
    parser.add_argument("--nodes", type=int, default=16, help="rows of a tree, the anchor among them")
    parser.add_argument("--calibrated", action="store_true", help="by a checkpoint's confidence, corrected on the way")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    pair = read_pair(given.pair, given.prompts)
    drafters = given.drafters or [pair.drafter]
    parts = [replace(pair, prompts=pair.prompts[first :: given.processes]) for first in range(given.processes)]
    work = [(part, drafters, given.tokens, given.nodes, given.calibrated) for part in parts if part.prompts]
    if given.processes == 1:
        found = counted(*work[0])
    else:
        with multiprocessing.get_context("spawn").Pool(len(work)) as pool:
            found = sum(pool.starmap(counted, work), Counter[Key]())
    for name, temperature in dict.fromkeys((name, temperature) for name, temperature, _ in found):
        tokens = found[name, temperature, "tokens"]
        taus = {f"tau of a {kind}": round(tokens / found[name, temperature, kind], 3) for kind in ("tree", "chain")}
        print(json.dumps({"drafter": name, "T": temperature, "tokens": tokens, **taus}), flush=True)


if __name__ == "__main__":
    main()
