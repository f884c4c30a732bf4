"""The same load straight to the target and through a gateway, in turn: what the gateway costs."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from deploy.stack import ServiceProcess
from services.common.pb.paceline.v1 import inference_pb2 as pb
from services.common.pb.paceline.v1 import inference_pb2_grpc as rpc
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.load import Load, TimedClient, frames_of, run, usual_prompt
from tests.bench.gpu.pair import ServedPair
from tests.bench.load.client import LoadClient
from tests.support.tiny_checkpoints import write_tokenizer

Row = dict[str, Any]
REPEATS = 3


async def gateway_rows(pair: ServedPair, concurrencies: Sequence[int], tokens: int) -> list[Row]:
    """One row for each concurrency, at the widest."""
    pair.switch("vllm")
    rows = []
    with _gateway(pair) as address:
        async with LoadClient(address) as client:
            await client.model()
        async with TimedClient(pair.address) as direct, grpc.aio.insecure_channel(address) as channel:
            for concurrency in concurrencies:
                prompt, draft = usual_prompt(pair.settings.context_limit), pair.settings.widths[-1] - 1
                rows.append(await _row(pair, direct, channel, Load(concurrency, prompt, tokens, draft, "gateway")))
    return rows


async def _row(pair: ServedPair, direct: TimedClient, channel: grpc.aio.Channel, load: Load) -> Row:
    vocab, count = pair.settings.shape.vocab, load.concurrency
    straight, through = [], []
    one = replace(load, tokens=1)
    # Uncounted: prompts enter the prefix cache, under the salt of either way.
    await run(direct, one, vocab)
    await _seconds(channel, one, vocab)
    for _ in range(REPEATS):
        first_s, whole_s = [(await run(direct, each, vocab)).seconds for each in (one, load)]
        straight.append(count * (load.tokens - 1) / (whole_s - first_s))
        first_s, whole_s = [await _seconds(channel, each, vocab) for each in (one, load)]
        through.append(count * (load.tokens - 1) / (whole_s - first_s))
    speed, alone = statistics.median(through), statistics.median(straight)
    return {
        "system": "paceline through a gateway",
        "mode": "fixed",
        "schedule": "vllm",
        "concurrency": count,
        "context": load.prompt,
        "k": load.draft,
        "decode_tok_s": round(speed, 1),
        "straight_tok_s": round(alone, 1),
        "against_straight": round(speed / alone, 3),
    }


async def _seconds(channel: grpc.aio.Channel, load: Load, vocab: int) -> float:
    """Wall time until the last of the requests has ended."""
    stub: Any = rpc.InferenceServiceStub(channel)  # the same class over asyncio channels
    requests = [
        pb.GenerateRequest(
            prompt=pb.Prompt(tokens=types.TokenIds(ids=frame.token_ids)),
            sampling=frame.sampling,
            stopping=frame.stopping,
            speculation=frame.speculation,
        )
        for frame in frames_of(load, vocab)
    ]

    async def follow(request: pb.GenerateRequest) -> int:
        return sum([len(message.delta.token_ids) async for message in stub.Generate(request, timeout=300)])

    start = time.perf_counter()
    counts = await asyncio.gather(*(follow(request) for request in requests))
    seconds = time.perf_counter() - start
    assert counts == [load.tokens] * load.concurrency, "every token came"
    return seconds


@contextmanager
def _gateway(pair: ServedPair) -> Iterator[str]:
    """A gateway in front of the pair; its address."""
    write_whole_tokenizer(pair.pair.target, pair.settings.shape.vocab)
    command = ["services.gateway", "--targets", pair.address, "--tokenizer", str(pair.pair.target)]
    with tempfile.TemporaryDirectory() as folder:
        process = ServiceProcess("gateway", [*command, "--max-queued-tokens", "1000000"], Path(folder), {})
        try:
            yield process.bound(60.0)["grpc"]
        finally:
            process.stop()


def write_whole_tokenizer(folder: Path, vocab: int) -> None:
    """A tokenizer with a word for every id of the model, so that each token of the output is text."""
    write_tokenizer(folder, vocab)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    words.update({f"Ġw{index:x}": index for index in range(len(words), vocab)})
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
