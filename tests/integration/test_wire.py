"""A drafter that shares no memory with its target, as on another host: texts and drafts travel over TCP and TLS."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.pair import ENVIRONMENT, PairProcesses
from tests.integration.test_pair import plain, requests, running
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import TinyPair, write_tiny
from tests.support.warm import START_S, WarmProcess
from tests.unit.common.serving.certificates import Authority

ALONE = ("--drafter-memory", "none", "--drafter-model", "none")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_tiny(tmp_path_factory.mktemp("models"), seed=3)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        yield Path(name)


@asynccontextmanager
async def remote(folder: Path, *flags: str) -> AsyncIterator[WarmProcess]:
    """A drafter on a TCP port of its own choice."""
    process = WarmProcess("remote", ["services.drafter", "--grpc", "127.0.0.1:0", *flags], folder, ENVIRONMENT)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.stop, 0.0)


async def test_texts_and_drafts_travel_over_tls(folder: Path, models: TinyPair) -> None:
    authority = Authority.make()
    ca = authority.write(folder / "ca.pem")
    cert, key = authority.issue(folder / "drafter", "drafter", host="drafters.internal")
    mine = authority.issue(folder / "target", "target")
    listener = ("--tls-cert", cert, "--tls-key", key, "--tls-ca", ca)
    names = ("--drafter-tls-ca", ca, "--drafter-tls-cert", mine[0], "--drafter-tls-key", mine[1])
    async with remote(folder, "--proposer", "ngram", *listener) as drafter:
        address = (await asyncio.to_thread(drafter.bound, START_S))["grpc"]
        flags = (*ALONE, *names, "--drafter-tls-name", "drafters.internal")
        async with running(PairProcesses(folder, models, flags, address=address)) as pair:
            frames = requests(4, 48)
            expected = await plain(pair, frames)
            async with SessionClient(pair.bound["grpc"]) as client:
                for frame in frames:
                    await client.start(frame)
                for name, received in client.requests.items():
                    assert (await received.ended()).speculation.drafted > 0
                    assert received.tokens == expected[name]
            state = await asyncio.to_thread(pair.describe)
            assert (state.attachment, state.handoff_mode, state.drafter.proposer) == ("attached", "wire", "ngram")
            assert sum(each.accepted for each in state.rounds) > 0
            assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)


async def test_a_dflash_drafter_without_the_memory_is_refused_by_name(folder: Path, models: TinyPair) -> None:
    async with remote(folder, "--model", str(models.drafter), "--insecure", "true") as drafter:
        address = (await asyncio.to_thread(drafter.bound, START_S))["grpc"]
        pair = PairProcesses(folder, models, (*ALONE, "--require-drafter", "false"), address=address)
        async with running(pair):
            said = "proposer dflash reads the target's memory, and this target shares none"
            await asyncio.to_thread(pair.until, lambda: said in pair.target.tail(), "refusal")
            frames = requests(1, 8)
            assert len((await plain(pair, frames))["r0"]) == 8
            assert (await asyncio.to_thread(pair.describe)).attachment == "none"
