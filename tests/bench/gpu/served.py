"""A pair as two processes with the real hand-off, loaded through a session, measured at the target's emit."""

from __future__ import annotations

import asyncio
import hashlib
import random
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.stack import ServiceProcess
from services.common.channel import connect_sync
from services.common.limits import PROTOCOL_VERSION
from services.common.model.made_up import MadeUpPair, write_configs
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.rig import RigSettings
from tests.session_client import Received, SessionClient, start

READY_S = 240.0
Row = dict[str, Any]


@dataclass(frozen=True)
class Load:
    """`concurrency` prompts of random tokens at once, no refill, greedy."""

    concurrency: int
    prompt: int = 512
    tokens: int = 128
    speculative: bool = True


class ServedPair:
    """Both processes; stops them at the end."""

    def __init__(
        self,
        settings: RigSettings,
        folder: Path,
        rates: tuple[float, ...],
        handoff: str,
        environment: Mapping[str, str],
    ) -> None:
        """Starts them; `rates` is the synthetic acceptance."""
        self._settings = settings
        pair = write_configs(folder / "models", settings.shape)
        self._drafter = ServiceProcess("drafter", self._drafter_command(pair, folder), folder, environment)
        command = ["services.target", "--model", str(pair.target), "--drafter-model", str(pair.drafter)]
        command += ["--drafter-address", f"unix:{folder}/d.sock", "--run-dir", str(folder), "--adaptive", "false"]
        command += ["--handoff", handoff, "--slots", str(settings.slots), "--prefix-cache", "false"]
        command += ["--context-limit", str(settings.context_limit), "--memory-bytes", str(settings.memory_bytes)]
        command += ["--prefill-chunk", str(settings.prefill_chunk), "--grpc", f"unix:{folder}/t.sock"]
        command += ["--widths", ",".join(map(str, settings.widths)), *self._common()]
        if rates:
            command += ["--synthetic-acceptance", ",".join(map(str, rates))]
        self._target = ServiceProcess("target", command, folder, environment)
        self.address = f"unix:{folder}/t.sock"

    def wait_ready(self) -> pb.TargetServiceDescribeResponse:
        """Waits for the attachment; returns the target's own description."""
        self._target.bound(READY_S)
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            self._target.check()
            self._drafter.check()
            description = self.describe()
            if description is not None and description.attachment == "attached":
                return description
            time.sleep(0.2)
        raise TimeoutError(f"no attachment\n{self._target.tail()}\n{self._drafter.tail()}")

    def describe(self) -> pb.TargetServiceDescribeResponse | None:
        """The target's description; None while it does not answer."""
        import grpc

        try:
            with connect_sync(self.address) as channel:
                request = pb.TargetServiceDescribeRequest(protocol_version=PROTOCOL_VERSION)
                response: pb.TargetServiceDescribeResponse = rpc.TargetServiceStub(channel).Describe(request, timeout=5)
                return response
        except grpc.RpcError:
            return None

    def stop(self) -> None:
        """Ends both."""
        for process in (self._target, self._drafter):
            process.stop()
            print(f"{process.name}: {process.tail(1500)}", file=sys.stderr)

    def _drafter_command(self, pair: MadeUpPair, folder: Path) -> list[str]:
        return ["services.drafter", "--model", str(pair.drafter), "--grpc", f"unix:{folder}/d.sock", *self._common()]

    def _common(self) -> list[str]:
        settings = self._settings
        return ["--device", settings.device, "--dtype", settings.dtype, "--random-weights", "true"]


async def measure(address: str, load: Load, vocab: int, repeats: int = 3) -> Row:
    """Decode speed by the difference of two runs, the second with one token each; median of the repeats."""
    async with SessionClient(address) as client:
        speeds, taus, micros = [], [], []
        digest = ""
        await _run(client, load, vocab, 8)
        for _ in range(repeats):
            first_s, _ = await _run(client, load, vocab, 1)
            total_s, received = await _run(client, load, vocab, load.tokens)
            tokens = sum(len(one.tokens) for one in received)
            rounds = [one.end.speculation.rounds for one in received]
            speeds.append((tokens - load.concurrency) / (total_s - first_s))
            taus.append((tokens - load.concurrency) / max(1, sum(rounds)))
            micros.append((total_s - first_s) / max(1, *rounds) * 1e6)
            digest = hashlib.sha256(repr([one.tokens for one in received]).encode()).hexdigest()
    return {
        "concurrency": load.concurrency,
        "context": load.prompt,
        "tau": round(statistics.median(taus), 2),
        "decode_tok_s": round(statistics.median(speeds), 1),
        "decode_tok_s_all": [round(speed, 1) for speed in speeds],
        "round_us": round(statistics.median(micros), 1),
        "text_sha256": digest,
    }


async def _run(client: SessionClient, load: Load, vocab: int, tokens: int) -> tuple[float, list[Received]]:
    generator = random.Random(load.concurrency)
    stamp = f"{time.monotonic_ns()}"
    frames = [
        start(
            f"{stamp}-{index}",
            [generator.randrange(2, vocab) for _ in range(load.prompt)],
            tokens,
            sampling=types.Sampling(temperature=0.0),
            speculation=None if load.speculative else types.Speculation(off=True),
        )
        for index in range(load.concurrency)
    ]
    began = time.perf_counter()
    received = [await client.start(frame) for frame in frames]
    await asyncio.gather(*(one.ended() for one in received))
    return time.perf_counter() - began, received
