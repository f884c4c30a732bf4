"""python -m tests.bench.gpu.mixtures: texts of a served mixture of experts, drafted and plain, alone and together.

A pair with few layers of a published shape, or all, runs as two processes. Weights are random and the router spreads.
Drafts come from a drafter that is a checkpoint, or from one that looks suffixes up. Where layers slide, some prompts
are longer than their window. Each text is asked for with drafts and without, and compared with the plain text of a
request alone. Graphs captured after warm-up are counted, and the memory of the whole GPU stands beside the plan. The
table is printed last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.rounds_told import times_of_rounds
from tests.bench.gpu.shapes import MIXTURES, TINY, mixture
from tests.gpu.memory import used_bytes
from tests.integration.pair import PairProcesses
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import BESIDE, SLIDING, TinyShape, write_configs

READY_S = 240.0
LENGTHS = (9, 40, 130)
TINY_CHANGES = {"gemma4_text": BESIDE}
PROPOSERS = ("dflash", "ngram")
TEMPERATURES = (0.0, 0.8)
AGAIN = 4
"""Times that a text is asked for again, with drafts and without, where it differs."""


@dataclass(frozen=True)
class Line:
    """Texts of one proposer at so many streams: how many differ from plain ones alone, and what came beside."""

    model: str
    proposer: str
    streams: int
    texts: int
    differ: int
    accepted: int
    captured: int
    tokens_per_s_plain: float
    tokens_per_s: float
    planned_gb: float
    held_gb: float


@dataclass(frozen=True)
class Load:
    """How much is asked, of prompts of these lengths."""

    device: str
    slots: int
    widths: str
    texts: int
    tokens: int
    streams: tuple[int, ...]
    memory_gib: int = 40
    lengths: tuple[int, ...] = LENGTHS
    limit: int = 512


FULL = Load("cuda", 32, "1,4,8", 32, 64, (1, 32))
SMALL = Load("cpu", 4, "1,4", 4, 16, (1, 4))


def load_of(name: str, tiny: bool, memory_gib: int) -> Load:
    """The load of a mixture: where layers slide, one prompt of four is longer than their window."""
    shape, family, _ = MIXTURES[name]
    load = SMALL if tiny else replace(FULL, memory_gib=memory_gib)
    if family not in SLIDING:
        return load
    past = (TINY if tiny else shape).window * 5 // 4
    return replace(load, lengths=(*LENGTHS, past), limit=512 if tiny else 2048)


def shape_of(name: str, layers: int, tiny: bool) -> tuple[TinyShape, str, Mapping[str, Any]]:
    """Shape, family and keys of config.json of a mixture with so many layers, 0: few; lists of layers repeat."""
    if tiny:
        family = MIXTURES[name][1]
        return TINY, family, TINY_CHANGES.get(family, {})
    return mixture(name, layers)


def served(name: str, proposer: str, load: Load, layers: int, tiny: bool, fixed: bool = False) -> Iterator[Line]:
    """Yield a line for each number of streams, and print it; widths are chosen as for users, or `fixed`."""
    shape, family, changes = shape_of(name, layers, tiny)
    used = used_bytes()
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        models = write_configs(Path(folder) / "models", shape, family, changes)
        dtype = "bfloat16" if load.device == "cuda" else "float64"
        both = ["--device", load.device, "--dtype", dtype, "--random-weights", "true"]
        flags = [
            *both,
            "--adaptive",
            str(not fixed).lower(),
            "--slots",
            str(load.slots),
            "--widths",
            load.widths,
            "--context-limit",
            str(load.limit),
        ]
        flags += ["--memory-bytes", str(load.memory_gib << 30)] if load.device == "cuda" else []
        flags += ["--drafter-model", "none"] if proposer == "ngram" else []
        drafts = both if proposer == "dflash" else ["--device", load.device, "--proposer", proposer]
        pair = PairProcesses(Path(folder), models, flags, drafter_flags=drafts)
        try:
            pair.wait_ready(READY_S)
            pair.until(lambda: pair.describe().attachment == "attached", "attachment", READY_S)
            for line in asyncio.run(_lines(pair, name, proposer, load, shape.vocab, used)):
                print(json.dumps(asdict(line)), file=sys.stderr, flush=True)
                yield line
            print(_told_apart(pair, used), file=sys.stderr, flush=True)
        finally:
            pair.stop()


def _told_apart(pair: PairProcesses, used: int) -> str:
    """Return what each process held beside the plan; the drafter ends."""
    planned, both = pair.describe().budget, used_bytes()
    pair.drafters[-1].stop(0.0)
    alone = used_bytes()
    return (
        f"drafter held {(both - alone) / 1e6:.1f} MB, target {(alone - used) / 1e6:.1f} MB; planned "
        f"{planned.total_bytes / 1e6:.1f} MB, fixed {planned.fixed_bytes / 1e6:.1f}, a slot "
        f"{planned.per_slot_bytes / 1e6:.3f}, blocks {planned.blocks}"
    )


async def _lines(pair: PairProcesses, name: str, proposer: str, load: Load, vocab: int, used: int) -> list[Line]:
    dice, lines = random.Random(7), list[Line]()
    prompts = [[dice.randrange(2, vocab) for _ in range(dice.choice(load.lengths))] for _ in range(load.texts)]
    before = pair.describe()
    async with SessionClient(pair.bound["grpc"]) as client:
        alone, _, _ = await _told(client, prompts, load, 1, drafts=False)
        for streams in load.streams:
            plain, _, slow = await _told(client, prompts, load, streams, drafts=False)
            told, accepted, fast = await _told(client, prompts, load, streams, drafts=True)
            odd = [index for index, text in enumerate(alone) if not text == plain[index] == told[index]]
            for index in odd:
                print(await _asked_again(client, prompts, load, index, (alone, plain, told)), file=sys.stderr)
            after = pair.describe()
            captured = sum(
                getattr(after.graphs, kind) - getattr(before.graphs, kind)
                for kind in ("captures", "recaptures", "reallocations")
            )
            print(times_of_rounds(pair, streams), file=sys.stderr)
            planned, held = after.budget.total_bytes / 1e9, (used_bytes() - used) / 1e9
            lines.append(
                Line(
                    name, proposer, streams, len(told), len(odd), accepted, captured, slow, fast, round(planned, 3),
                    round(held, 3),
                )
            )  # fmt: skip
    return lines


async def _asked_again(
    client: SessionClient, prompts: Sequence[Sequence[int]], load: Load, index: int, texts: Sequence[list[list[int]]]
) -> str:
    """Return where a text left the one that was plain and alone, and whether it does so again, alone."""
    alone = texts[0][index]
    parted = [_parted(alone, found[index]) for found in texts[1:]]
    again = {
        kind: [_parted(alone, (await _told(client, prompts, load, 1, drafts, [index]))[0][0]) for _ in range(AGAIN)]
        for kind, drafts in (("plain", False), ("drafted", True))
    }
    return (
        f"text {index} of a prompt of {len(prompts[index])} parted at {parted[0]} plain, {parted[1]} drafted; "
        f"alone again at {again['plain']} plain, {again['drafted']} drafted (-1: nowhere)"
    )


def _parted(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the first token that differs, -1 where none does."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), -1)


async def _told(
    client: SessionClient,
    prompts: Sequence[Sequence[int]],
    load: Load,
    streams: int,
    drafts: bool,
    which: Sequence[int] | None = None,
) -> tuple[list[list[int]], int, float]:
    """Return the texts of these prompts or of all, how many drafts were accepted, and tokens a second together."""
    which = range(len(prompts)) if which is None else which
    room, writing = asyncio.Semaphore(streams), asyncio.Lock()
    mark = f"{streams}-{drafts}-{time.monotonic_ns()}"

    async def one(index: int) -> tuple[list[int], int]:
        sampling = types.Sampling(temperature=TEMPERATURES[index % len(TEMPERATURES)], seed=index)
        frame = start(
            f"{mark}-{index}",
            prompts[index],
            load.tokens,
            sampling=sampling,
            speculation=types.Speculation(off=not drafts),
            tenant_salt=f"{mark}-{index}".encode(),
        )
        async with room:
            async with writing:
                stream = await client.start(frame)
            end = await stream.ended()
        return stream.tokens, int(end.speculation.accepted)

    began = time.perf_counter()
    found = await asyncio.gather(*map(one, which))
    took = time.perf_counter() - began
    return [text for text, _ in found], sum(count for _, count in found), round(len(which) * load.tokens / took, 1)


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a short table."""
    head = "model    proposer  streams  texts  differ  accepted  captured  plain tok/s  drafted  planned GB  held GB"
    return "\n".join(
        [
            head,
            *(
                f"{one.model:8} {one.proposer:8} {one.streams:8} {one.texts:6} {one.differ:7} {one.accepted:9} "
                f"{one.captured:9} {one.tokens_per_s_plain:12} {one.tokens_per_s:8} {one.planned_gb:11} {one.held_gb:8}"
                for one in lines
            ),
        ]
    )


def main() -> int:
    """Returns 1 where a text differs, or a graph was captured late."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.mixtures", description=__doc__)
    parser.add_argument("--model", nargs="+", choices=sorted(MIXTURES), default=["30b-a3b"])
    parser.add_argument("--proposer", nargs="+", choices=PROPOSERS, default=PROPOSERS)
    parser.add_argument("--layers", type=int, default=0, help="of the target; 0: few")
    parser.add_argument("--memory-gib", type=int, default=FULL.memory_gib, help="what the pair may take of the GPU")
    parser.add_argument("--tiny", action="store_true", help="a tiny pair on a CPU, whose times say nothing")
    parser.add_argument("--fixed", action="store_true", help="all rounds with drafts have the widest")
    asked = parser.parse_args()
    lines = [
        line
        for name in asked.model
        for proposer in asked.proposer
        for line in served(
            name, proposer, load_of(name, asked.tiny, asked.memory_gib), asked.layers, asked.tiny, asked.fixed
        )
    ]
    print(table(lines))
    return int(any(line.differ or line.captured for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
