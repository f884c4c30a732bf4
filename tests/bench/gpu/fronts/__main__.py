"""python -m tests.bench.gpu.fronts --vllm FOLDER: a race through HTTP, a table last, JSON with --save.

One client sends the same requests to paceline's gateway and to vLLM's server: all at once, then chats of six turns that
find their own words in the cache, then by chance with mixed lengths, at shares of what the quicker vLLM can take. Both
sides stay up, and loads run in turn. Without --vllm paceline runs alone; --tiny is a short run on a CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.gpu.fronts.client import Answer, ServerError, answers, chat_answers
from tests.bench.gpu.fronts.loads import TURNS, by_chance, chats, mean_out, most_tok_s, together
from tests.bench.gpu.fronts.rows import Row, row_of, table
from tests.bench.gpu.fronts.servers import MODEL, Server, paceline, vllm
from tests.bench.gpu.pair import PairOptions
from tests.bench.gpu.race.merge import text_of
from tests.bench.gpu.race.plan import repeats_of
from tests.bench.gpu.race.scale import FULL_SCALE, TINY_SCALE
from tests.bench.gpu.race.theirs import PeerOptions
from tests.bench.gpu.results import circumstances
from tests.bench.gpu.shapes import FORMATS, SHAPES, named

SEED = 20
TINY_LENGTH = 12
CHAT_REPEATS = 2
Load = Callable[[str, str], Coroutine[Any, Any, list[Answer]]]
"""Asks a model at an address."""


def main() -> int:
    """Measures what was asked for."""
    asked = arguments()
    scale = TINY_SCALE if asked.tiny else replace(FULL_SCALE, shape=SHAPES[asked.shape])
    settings = replace(scale.settings(asked.memory_gb), changes=FORMATS[asked.weights])
    options = PairOptions(
        drafter_weights=asked.drafter_weights, short_blocks=asked.short_blocks, flags=tuple(asked.flags.split())
    )
    with ExitStack() as stack:
        servers = [stack.enter_context(paceline(settings, options))]
        if asked.vllm:
            peer = PeerOptions(Path(asked.vllm).resolve(), asked.vllm_python)
            servers += stack.enter_context(vllm(settings, asked.drafts, peer, asked.vllm_gb << 30))
        print("ready", flush=True)
        rows = measured(servers, asked, settings.shape.vocab)
    if asked.save:
        told = circumstances(named(asked.shape, asked.weights), "tests.bench.gpu.fronts")
        told["versions"] |= {server.name: server.version for server in servers if server.version}
        Path(asked.save).write_text(text_of(told | {"rows": rows}))
    print(table(rows))
    return 0


def measured(servers: Sequence[Server], asked: argparse.Namespace, vocab: int) -> list[Row]:
    """Return rows of all loads; a load runs on each server before the next one does."""
    rows: list[Row] = []
    for count in asked.group:
        repeats = asked.repeats or repeats_of(count)
        loads = [together(count, vocab, draws, asked.length) for draws in range(1 + repeats)]
        rows += _rows(servers, f"{count} at once", [partial(answers, requests=load) for load in loads])
    for count in asked.chats:
        turns = [chats(count, vocab, draws, asked.length) for draws in range(1 + CHAT_REPEATS)]
        rows += _rows(servers, f"{count} chats of {TURNS} turns", [partial(chat_answers, chats=one) for one in turns])
    limit = asked.limit or _limit(rows)
    for share in asked.shares:
        # Chance at the lengths of the table, or at tiny ones.
        rate = share * limit / mean_out(asked.length)
        requests = by_chance(rate, asked.seconds, vocab, SEED, asked.length)
        name, load = f"{share:.0%} by chance, {rate:.1f} a second", partial(answers, requests=requests)
        most = round(most_tok_s(requests))
        print(f"{name}: {most:,} tok/s if all were answered at once")
        rows += [row | {"most_tok_s": most} for row in _rows(servers, name, [load], warm_up=0)]
    return rows


def _rows(servers: Sequence[Server], name: str, loads: Sequence[Load], warm_up: int = 1) -> list[Row]:
    """A row for each server that answered; the first so many of the repeats are not counted."""
    rows = []
    for server in servers:
        repeats = [asyncio.run(_tried(server, load)) for load in loads][warm_up:]
        whole = [repeat for repeat in repeats if repeat]
        rows += [row_of(server.name, name, whole)] if whole else []
        print(rows[-1:], flush=True)
    return rows


async def _tried(server: Server, load: Load) -> list[Answer]:
    """Nothing where a server failed: the others are still measured."""
    try:
        return await load(server.address, MODEL)
    except (ServerError, OSError, TimeoutError) as error:
        print(f"{server.name}: {error!r}", file=sys.stderr, flush=True)
        return []


def _limit(rows: Sequence[Row]) -> float:
    """Tokens a second of the quickest peer, or of paceline where it runs alone."""
    theirs = [row for row in rows if row["system"] != "paceline"]
    return max(float(row["tok_s"]) for row in theirs or rows)


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.fronts", description=__doc__)
    parser.add_argument("--vllm", default="", help="folder with vLLM's packages")
    parser.add_argument("--vllm-python", default=sys.executable, help="what runs them")
    parser.add_argument("--vllm-gb", type=int, default=24, help="of each vLLM's keys and values")
    parser.add_argument("--drafts", type=int, nargs="+", default=[7], help="K of vLLM, a server each; 0 is plain")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-4b", help="of the model")
    parser.add_argument("--weights", choices=sorted(FORMATS), default="bf16", help="format of both sides' target")
    parser.add_argument("--group", type=int, nargs="+", default=[1, 8, 32, 128], help="requests at once")
    parser.add_argument("--repeats", type=int, default=0, help="of each load; more of few requests without")
    parser.add_argument("--length", type=int, default=512, help="tokens of prompts and of answers")
    parser.add_argument("--chats", type=int, nargs="*", default=[8], help="chats at once")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.5, 0.7, 0.9], help="of the limit, by chance")
    parser.add_argument("--limit", type=float, default=0.0, help="tokens a second; the quickest peer's without")
    parser.add_argument("--seconds", type=float, default=20.0, help="for which requests come by chance")
    parser.add_argument(
        "--drafter-weights", choices=["dtype", "int8"], default="int8", help="of paceline's; serve takes int8"
    )
    parser.add_argument("--short-blocks", action="store_true", help="paceline drafts blocks as wide as the round")
    parser.add_argument("--memory-gb", type=float, default=40.0, help="of paceline's pair, weights included")
    parser.add_argument("--flags", default="", help="further flags of paceline's target")
    parser.add_argument("--save", default="", help="file of the results")
    parser.add_argument("--tiny", action="store_true", help="little of everything on a CPU, to see that it runs")
    asked = parser.parse_args()
    if asked.tiny:
        asked.group, asked.chats, asked.repeats, asked.length, asked.seconds = [1, 2], [2], 1, TINY_LENGTH, 1.0
    return asked


if __name__ == "__main__":
    sys.exit(main())
