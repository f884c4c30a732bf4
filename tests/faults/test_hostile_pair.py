"""Z8: strangers at the TCP ports of a target and a drafter take little memory, and end neither."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator

import pytest

from services.common.serving.channel import MAX_MESSAGE_BYTES
from tests.faults.half_sent import half_sent
from tests.faults.http2 import DATA, END_HEADERS, HEADERS, START, frame, opening
from tests.faults.test_half_sent import resident_mib
from tests.faults.test_hostile import CONNECTIONS, GROWN_MIB, attack, attacks
from tests.integration.pair import ENVIRONMENT, PairProcesses
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import write_tiny
from tests.support.warm import START_S, WarmProcess

SECRET = "known to gateways and targets"
SESSION, DESCRIBE = b"/paceline.v1.TargetService/Session", b"/paceline.v1.TargetService/Describe"
PACE = b"/paceline.v1.DrafterService/Pace"
QUIET_S = 0.3


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairProcesses]:
    """A target over TCP that wants a secret, and a drafter over TCP that wants nothing; each is attacked in turn."""
    tmp_path = tmp_path_factory.mktemp("pair")
    models = write_tiny(tmp_path / "models", seed=3)
    command = ["services.drafter", "--proposer", "ngram", "--grpc", "127.0.0.1:0", "--insecure", "true"]
    drafter = WarmProcess("remote", command, tmp_path, ENVIRONMENT)
    made = None
    try:
        address = drafter.bound(START_S)["grpc"]
        flags = ("--drafter-memory", "none", "--drafter-model", "none", "--grpc", "127.0.0.1:0")
        made = PairProcesses(tmp_path, models, (*flags, "--session-secret", SECRET), address=address)
        made.drafters.append(drafter)
        made.wait_ready()
        yield made
    finally:
        for process in ([made.target] if made else []) + [drafter]:
            process.stop(0.0)


async def generated(pair: PairProcesses) -> int:
    """Tokens of a request of who knows the secret."""
    async with SessionClient(pair.bound["grpc"], secret=SECRET) as client:
        received = await client.start(start("r", (1, 2, 3), 8))
        await received.ended()
        return len(received.tokens)


async def half_sent_messages(address: str, method: bytes) -> None:
    """Large messages of which all is sent that is taken, but for their ends; nobody shows a secret."""
    peers = [await half_sent(address) for _ in range(CONNECTIONS)]
    for peer in peers:
        peer.open(20, MAX_MESSAGE_BYTES, method=method)
    await asyncio.gather(*(peer.run(QUIET_S, lambda: True) for peer in peers))
    for peer in peers:
        peer.close()


def inflated(method: bytes) -> bytes:
    """A message that says it is compressed, and would be large."""
    squeezed = b"\x01" + struct.pack(">I", 1000) + bytes(1000)
    compressed = b"\x00\x0dgrpc-encoding\x04gzip"
    return START + frame(HEADERS, END_HEADERS, 1, opening(method, compressed)) + frame(DATA, 1, 1, squeezed)


@pytest.mark.parametrize("who", ["target", "drafter"])
async def test_z8_strangers_end_no_pair(
    pair: PairProcesses, who: str, report_counts: Callable[[str, int], None]
) -> None:
    assert await generated(pair) == 8
    process = pair.target if who == "target" else pair.drafters[0]
    methods = [SESSION, DESCRIBE] if who == "target" else [PACE]
    address = process.bound(START_S)["grpc"]
    before = most = await asyncio.to_thread(resident_mib, process)
    chosen = [data for _, data in attacks()] + [inflated(method) for method in methods]

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, resident_mib(process))
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        for at in range(0, len(chosen), CONNECTIONS):
            await asyncio.gather(*(attack(address, data, 0.0) for data in chosen[at : at + CONNECTIONS]))
        if who == "target":
            for method in methods:
                await half_sent_messages(address, method)
        assert await generated(pair) == 8
    finally:
        looking.cancel()
    print(f"Z8 {who}: {most - before:.0f} MiB more at the most under {len(chosen)} attacks")
    assert most - before <= GROWN_MIB
    report_counts("hostile_connections_inside", len(chosen))
