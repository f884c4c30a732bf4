"""python -m tests.bench.mask_rounds: how long the masks of a round of ruled requests take, without a model.

Each request writes the same JSON in rounds of eight tokens behind fifteen drafts, one by one and by threads in turn;
the masks of both are compared. Times are of a round: the middle of the wall's, and the CPU's mean.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from services.common.request.grammar import Grammars
from services.target.device.masks import Work, by_itself, by_threads
from services.target.device.walker import Walker
from tests.bench.ruled import CONSTRAINTS, models

NAMES = ("read lines", "stack of plates", "x", "some file name", "left", "a list of it")
TEXT = "[" + ", ".join(json.dumps({"name": f"{NAMES[at % 6]}{at % 5}", "value": at * 37}) for at in range(60))
WIDTH, COMMITTED = 16, 8


def rounds(grammars: Grammars, ids: Sequence[int], requests: int, threads: ThreadPoolExecutor, most: int) -> None:
    """Prints one line for some requests at a time."""
    rule, words = grammars.rule(CONSTRAINTS["objects"]), grammars.words
    walkers = [[Walker(grammars.grammar(rule)) for _ in range(requests)] for _ in range(2)]
    rooms_BWN = [np.zeros((requests, WIDTH, words), np.int32) for _ in range(2)]
    spent: tuple[list[float], ...] = [], [], [], []
    for at in range(0, len(ids) - WIDTH - COMMITTED, COMMITTED):
        drafts = ids[at : at + WIDTH - 1]
        for way, (walks, room_BWN) in enumerate(zip(walkers, rooms_BWN, strict=True)):
            work: list[Work] = [(walker, room_BWN[index], drafts) for index, walker in enumerate(walks)]
            cpu, wall = time.process_time(), time.perf_counter()
            told = by_threads(threads, work, most) if way else [by_itself(one) for one in work]
            spent[way].append(time.perf_counter() - wall)
            spent[2 + way].append(time.process_time() - cpu)
            assert told == [[*drafts]] * requests
            for walker in walks:
                walker.commit(ids[at : at + COMMITTED])
        assert (rooms_BWN[0] == rooms_BWN[1]).all()
    wall_ms = [round(statistics.median(each) * 1e3, 3) for each in spent[:2]]
    cpu_ms = [round(statistics.fmean(each) * 1e3, 3) for each in spent[2:]]
    print(json.dumps({"requests": requests, "threads": most, "alone, threads: wall_ms": wall_ms, "cpu_ms": cpu_ms}))


def main() -> int:
    """Prints a line for each number of requests and threads."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.mask_rounds", description=__doc__)
    parser.add_argument("--pair", choices=("embedded", "smollm2"), default="embedded")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    asked = parser.parse_args()
    text = (Path(models(asked.pair)[0]) / "tokenizer.json").read_text("utf-8")
    tokenizer = Tokenizer.from_str(text)
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    for most in asked.threads:
        grammars = Grammars(text, tokenizer.get_vocab_size(), (0,), most)
        for _ in range(most):
            grammars.grammar(grammars.rule(CONSTRAINTS["objects"]))
        with ThreadPoolExecutor(most) as threads:
            for requests in asked.requests:
                rounds(grammars, ids, requests, threads, most)
    return 0


if __name__ == "__main__":
    sys.exit(main())
