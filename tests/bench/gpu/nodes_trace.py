"""python -m tests.bench.gpu.nodes_trace: where rounds of chains, of trees and plain ones go, on GPU and hosts.

Each way is a running pair whose processes stamp the parts of their rounds (`stamped.py`). A table has the median of
each part's place, microseconds behind the end of the verify before, of rounds that follow one of their kind. Plain
rounds have no stamps on the GPU: theirs are behind the end of the commit before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest import mock

from deploy.stack import ServiceProcess
from tests.bench.gpu import nodes
from tests.bench.gpu.mps import Mps
from tests.bench.gpu.nodes import COMPILE_THREADS, MEMORY, READY_S, Pair, _pair, _told
from tests.bench.gpu.stamped import BUCKETS, CHAINS, FOLDER
from tests.integration.pair import ENVIRONMENT, PairProcesses
from tests.support.tiny_checkpoints import TinyPair

PARTS = {
    0: "verify: its graph begins", 1: "verify: the drafts came", 2: "verify: drafts are read", 3: "verify: layers end",
    4: "verify: head ends", 5: "verify: accept ends", 6: "verify: ends", 10: "draft: its graph begins",
    11: "draft: published came", 14: "draft: candidates end", 12: "draft: nodes are chosen", 13: "draft: ends",
}  # fmt: skip
WAYS = {
    "chains": ([], False), "trees": (["--nodes", "true"], False), "chains of nodes": (["--nodes", "true"], True),
    "choosing": (["--nodes", "true"], False), "chosen chains": ([], False),
}  # fmt: skip
FIXED, FREE = ["--adaptive", "false"], ["--adaptive", "true"]
CHOSEN = ("choosing", "chosen chains")
_MODULE = "tests.bench.gpu.stamped"


class StampedPair(PairProcesses):
    """A pair whose target and drafter stamp their rounds."""

    def add_drafter(self) -> int:
        """As that of the base, of the other module."""
        number = len(self.drafters)
        command = [_MODULE, "--model", str(self._models.drafter), "--grpc", f"unix:{self.folder}/d{number}"]
        told = {**ENVIRONMENT, FOLDER: str(self.folder)}
        self.drafters.append(
            ServiceProcess(f"drafter-{number}", [*command, *self._drafter_flags], self.folder, told)
        )  # fmt: skip
        return number

    def told(self, number: int) -> dict[str, Any]:
        """What both processes say to a file of that number, by their side."""
        found = {}
        for side in ("target", "drafter"):
            file = self.folder / f"{side}-{number}.json"
            self.until(file.exists, f"answer of the {side}", 20.0)
            found[side] = json.loads(file.read_text())
        return found


def _started(folder: Path, pair: Pair, way: str, asked: argparse.Namespace) -> StampedPair:
    folder.mkdir(mode=0o700)
    flags, chains = WAYS[way]
    device = ["--device", asked.device, "--dtype", "bfloat16" if asked.device == "cuda" else "float32"]
    flags = [*flags, *(FREE if way in CHOSEN else FIXED)]
    target = [*device, "--widths", asked.widths, *flags, "--slots", str(max(asked.slots, *asked.streams))]
    drafter = list(device)
    if asked.device == "cuda":
        drafter += ["--compile-threads", str(COMPILE_THREADS)]
        target += ["--memory-bytes", str(MEMORY), "--compile-threads", str(COMPILE_THREADS)]
    told = {**ENVIRONMENT, FOLDER: str(folder), CHAINS: str(int(chains))}
    if asked.brief:
        told[BUCKETS] = ",".join(map(str, sorted({1, *asked.streams, max(asked.slots, *asked.streams)})))
    models = TinyPair(pair.target, pair.drafter)
    return StampedPair(folder, models, target, told, drafter, module=_MODULE)


def places(told: dict[str, Any]) -> dict[int, dict[str, float]]:
    """By round: when each part was, in ns of the host's clock; only rounds of drafts without prompts."""
    rounds: dict[int, dict[str, float]] = defaultdict(dict)
    for side, noted in told.items():
        for number, which, when in noted["places"]:
            rounds[number][PARTS[which]] = when - noted["ahead"]
        for name, number, began, ended, *more in noted["calls"]:
            rounds[number][f"  {side}'s host: {name} begins"] = began
            rounds[number][f"  {side}'s host: {name} ends"] = ended
            if name == "launch":
                rounds[number]["kind"] = more[0] + more[1] / 2 if not more[2] else -1
                rounds[number]["rows"] = more[3]
    return rounds


def table(told: dict[str, Any], streams: int, most: int = 3) -> list[str]:
    """Lines of the rounds of all streams, kind by kind, those that came most often first."""
    rounds = {number: one for number, one in places(told).items() if one.get("rows") == streams}
    kinds = Counter(one["kind"] for one in rounds.values() if one["kind"] > 0)
    lines = [f"rounds by kind: {dict(kinds)}"]
    for kind, _ in kinds.most_common(most):
        lines += _of_kind({number: one for number, one in rounds.items() if one["kind"] == kind}, kind)
    return lines


def _of_kind(rounds: dict[int, dict[str, float]], kind: float) -> list[str]:
    """Lines of the parts of a median round: their places behind the end of the round before, and the quartiles."""
    found, periods = dict[str, list[float]](), []
    last = PARTS[6] if any(PARTS[6] in one for one in rounds.values()) else "  target's host: _commit ends"
    for number, one in rounds.items():
        before = rounds.get(number - 1, {})
        if last not in before or last not in one:
            continue
        zero = before[last]
        periods.append((one[last] - zero) / 1e3)
        for part, when in one.items():
            if part not in ("kind", "rows"):
                found.setdefault(part, []).append((when - zero) / 1e3)
    if len(periods) < 2:
        return [f"{len(periods)} rounds of kind {kind}"]
    lines = [f"{len(periods)} rounds of kind {kind}, a median round of {median(periods):.0f} us"]
    for part, each in sorted(found.items(), key=lambda item: median(item[1])):
        if len(each) > 1:
            low, middle, high = quantiles(each, n=4)
            lines.append(f"{middle:8.0f} ({low:.0f} to {high:.0f}) {part}")
    return lines


def kernels(told: dict[str, Any], most: int) -> list[str]:
    """Lines of kernels by what they and the gaps before them take in a round; a round begins with a wait of the GPU."""
    lines = []
    for side, noted in told.items():
        rounds = max(1, sum("_wait_kernel" in name for _, _, name in noted["kernels"]))
        taken: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        end = 0
        for start, took, name in noted["kernels"]:
            one = taken[name]
            one[0] += 1
            one[1] += max(0, start + took - max(start, end)) / 1e3
            one[2] += max(0, start - end) / 1e3 if end else 0.0
            end = max(end, start + took)
        count, busy, idle = (sum(one[at] for one in taken.values()) / rounds for at in range(3))
        lines.append(f"{side}: {rounds} rounds of {count:.0f} launches, {busy:.0f} us and gaps of {idle:.0f}")
        for name, one in sorted(taken.items(), key=lambda item: -item[1][1] - item[1][2])[:most]:
            lines.append(
                f"  {one[1] / rounds:7.1f} us, {one[2] / rounds:6.1f} before, {one[0] / rounds:5.1f} {name[:80]}"
            )
    return lines


async def _load(pair: Pair, asked: argparse.Namespace, one: StampedPair, streams: int, turns: int) -> float:
    """Tokens a second of some loads one after another."""
    loads = [await _told(pair, streams, 0.0, asked, one, True, turn) for turn in range(turns)]
    return sum(load.tokens for load in loads) / sum(load.seconds for load in loads)


def _measured(pair: Pair, asked: argparse.Namespace, one: StampedPair, way: str, streams: int, at: int) -> list[str]:
    asyncio.run(_load(pair, asked, one, streams, asked.warm))
    (one.folder / f"dump-{at}").touch()
    one.told(at)
    speed = asyncio.run(_load(pair, asked, one, streams, asked.repeats))
    (one.folder / f"dump-{at + 1}").touch()
    return [f"== {way}, {streams} streams: {speed:.0f} tokens a second", *table(one.told(at + 1), streams)]


def _profiled(pair: Pair, asked: argparse.Namespace, one: StampedPair, way: str, streams: int, at: int) -> list[str]:
    (one.folder / f"profile-{at}").touch()
    time.sleep(1.0)
    slower = asyncio.run(_load(pair, asked, one, streams, 1))
    (one.folder / f"stop-{at}").touch()
    try:
        lines = kernels(one.told(at), asked.kernels)
    except AssertionError as error:
        lines = [f"no kernels were traced: {str(error)[-600:]}"]
    return [f"-- {way}, {streams} streams, every kernel traced: {slower:.0f} tokens a second", *lines]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line, or what is given, says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.nodes_trace", description=__doc__)
    parser.add_argument("--pair", default="embedded")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--widths", default="1,4,8,16")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--streams", type=int, nargs="+", default=[1])
    parser.add_argument("--slots", type=int, default=1, help="of each target, if more than streams")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=14, help="kernels told of, of each process")
    parser.add_argument("--profile", action="store_true", help="trace every kernel too")
    parser.add_argument("--brief", action="store_true", help="capture what this load needs, so that pairs start soon")
    parser.add_argument("--drafter", type=Path, help="another one of the pair's target")
    loads = nodes.arguments([])  # what `_told` asks for
    return argparse.Namespace(**vars(loads) | vars(parser.parse_args(given)))


def main() -> int:
    """Prints a table of each way."""
    asked = arguments()
    pair = _pair(asked.pair, 16)
    pair = replace(pair, drafter=asked.drafter or pair.drafter)
    with (
        Mps(asked.device == "cuda") as shared,
        tempfile.TemporaryDirectory(prefix="pl") as folder,
        mock.patch.dict(os.environ, shared),
    ):
        pairs = {way: _started(Path(folder) / str(at), pair, way, asked) for at, way in enumerate(asked.ways)}
        try:
            for one in pairs.values():
                one.wait_ready(READY_S)
            at = 0
            for tell, streams in product((_measured, _profiled)[: 1 + asked.profile], asked.streams):
                for way, one in pairs.items():
                    print("\n".join(tell(pair, asked, one, way, streams, at)), flush=True)
                at += 1 + (tell is _measured)
        finally:
            for one in pairs.values():
                one.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
