"""Z4: a hostile drafter on every way into the target: the side socket, its answers as bytes, the mailbox."""

from __future__ import annotations

import asyncio
import random
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from services.common.kernels.mailbox import ABSENT, read_mailbox
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from tests.faults.conftest import Size
from tests.faults.test_drafter_hostile import VOCAB, running
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import plain, requests
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import TinyPair, write_tiny

SERVICE = "paceline.v1.DrafterService"
NUMBERS = (0, 1, 7, 2**31 - 1, 2**32 - 1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    return write_tiny(tmp_path_factory.mktemp("models"), seed=3)


async def same_text(pair: PairProcesses, expected: dict[str, list[int]]) -> None:
    async with SessionClient(pair.bound["grpc"]) as client:
        for frame in requests(4, 60):
            await client.start(frame)
        for received in client.requests.values():
            await received.ended()
        assert {name: received.tokens for name, received in client.requests.items()} == expected


@pytest.mark.whole
async def test_z4_any_bytes_on_the_side_socket_are_refused(
    models: TinyPair, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    count = size(500, 50_000)

    def strike(path: Path) -> None:
        for _ in range(count):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.connect(str(path))
                peer.settimeout(30.0)
                try:
                    peer.sendall(rng.randbytes(rng.randint(16, 64)))
                    _, descriptors, _, _ = socket.recv_fds(peer, 1, 4)
                except ConnectionError:
                    continue
                assert not descriptors, "nothing is handed to a stranger"

    async with running(models) as pair:
        expected = await plain(pair, requests(4, 60))
        (path,) = pair.folder.glob("side-*/arena-*.sock")
        striking = asyncio.create_task(asyncio.to_thread(strike, path))
        while not striking.done():
            await same_text(pair, expected)
        await striking
        await same_text(pair, expected)
    report_counts("side_socket_messages", count)


class ByteDrafter:
    """A drafter whose answers are whatever bytes a test makes; attachments are told a wild story about themselves."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.address = f"unix:{folder}/bytes.sock"
        self.answers = 0
        self._random = random.Random(seed)
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Attach": grpc.unary_unary_rpc_method_handler(self._attach, pb.AttachRequest.FromString, bytes),
            "Pace": grpc.stream_stream_rpc_method_handler(self._pace, pb.PaceRequest.FromString, bytes),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()

    def _attach(self, request: pb.AttachRequest, context: grpc.ServicerContext) -> bytes:
        pick = self._random
        self.answers += 1
        if pick.random() < 0.2:
            return pick.randbytes(pick.randint(0, 64))
        answer = pb.AttachResponse(
            protocol_version=1,
            nonce_reply=request.nonce + 1,
            drafter=pb.DrafterInfo(
                proposer=pick.choice(("", "dflash", "\0", "x" * 10_000)),
                revision=pick.choice(("", "y" * 100)),
                max_draft=pick.choice(NUMBERS),
                pid=pick.choice((0, 1, 2**31 - 1)),
                instance_id=pick.choice(("", "z")),
            ),
        )
        return answer.SerializeToString()

    def _pace(self, requests: Iterator[pb.PaceRequest], context: grpc.ServicerContext) -> Iterator[bytes]:
        pick = self._random
        for request in requests:
            self.answers += 1
            right = pb.PaceResponse(generation=request.generation, round=request.round).SerializeToString()
            if pick.random() < 0.1:
                yield pick.randbytes(pick.randint(1, 64))
            if pick.random() < 0.3:
                yield pb.PaceResponse(generation=pick.getrandbits(63), round=pick.getrandbits(63)).SerializeToString()
            yield right


@pytest.mark.whole
async def test_z4_answers_of_any_bytes_cost_speed_only(
    models: TinyPair, seed: int, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        hostile = ByteDrafter(Path(name), seed)
        try:
            async with running(models, "--drafter-address", hostile.address, "--require-drafter", "false") as pair:
                expected = await plain(pair, requests(4, 60))
                while hostile.answers < size(100, 5000):
                    await same_text(pair, expected)
                state = await asyncio.to_thread(pair.describe)
                assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
        finally:
            hostile.stop()
    report_counts("hostile_answers", hostile.answers)


def test_z4_a_mailbox_of_any_bytes_gives_drafts_in_range_or_none(
    seed: int, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """Only a slot with the very tag of the round may be taken, and only when every id is in range."""
    made = torch.Generator().manual_seed(seed)
    slots, draft, round_number, generation = 64, 7, 9, 3
    expected_2 = torch.tensor([round_number, generation])
    epochs_S = torch.randint(0, 4, (slots,), generator=made)
    rows_B = torch.arange(slots, dtype=torch.int32)
    rows = taken = 0
    while rows < size(10_000, 100_000):
        wild_SK = torch.randint(-(2**31), 2**31, (slots, draft), generator=made).to(torch.int32)
        right_SK = torch.randint(0, VOCAB, (slots, draft), generator=made).to(torch.int32)
        tokens_SK = torch.where(torch.rand(slots, 1, generator=made) < 0.5, right_SK, wild_SK)
        near_S3 = torch.randint(0, 3, (slots, 3), generator=made)
        tags_S3 = torch.stack((near_S3[:, 0] + round_number - 1, near_S3[:, 1], near_S3[:, 2] + generation - 1), 1)
        far_S1 = torch.rand(slots, 1, generator=made) < 0.2
        tags_S3 = torch.where(far_S1, torch.randint(-(2**62), 2**62, (slots, 3), generator=made), tags_S3)
        out_BK = torch.empty(slots, draft, dtype=torch.int64)
        read_mailbox(tokens_SK, tags_S3, rows_B, epochs_S, expected_2, VOCAB, out_BK)
        for slot in range(slots):
            tagged = tags_S3[slot].tolist() == [round_number, int(epochs_S[slot]), generation]
            ids = tokens_SK[slot].tolist()
            wanted = ids if tagged and all(0 <= each < VOCAB for each in ids) else [ABSENT] * draft
            assert out_BK[slot].tolist() == wanted
            taken += wanted is ids
        rows += slots
    assert taken > 0
    report_counts("mailbox_rows", rows)
