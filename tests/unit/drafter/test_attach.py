"""Attach over gRPC: what is accepted, what is refused and why, and what is left behind (I5)."""

import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from grpc_status import rpc_status

from services.common.model import load_block
from services.common.pair import attach
from services.common.request.error_convert import from_status
from services.common.request.errors import Reason
from tests.support.fakes_arena import FakeArena, fake_arena
from tests.support.tiny_checkpoints import write_tiny
from tests.unit.drafter.running import ask, freed, mapped_arenas, running

CYCLES = 50


async def _refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, Reason, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    rich = from_status(rpc_status.from_call(caught.value))
    return caught.value.code(), rich.reason, rich.message


async def test_attach_proves_that_both_see_one_memory(folder: Path, fake: FakeArena) -> None:
    async with running(folder) as drafter:
        answer = await drafter.attach(fake.offer)
        assert answer.nonce_reply == fake.offer.nonce + 1
        assert (answer.drafter.proposer, answer.drafter.pid, answer.drafter.max_draft) == ("ngram", os.getpid(), 7)
        assert fake.listener.claimed_by == os.getpid()
        assert await drafter.generation() == 1


WRONG_OFFERS: tuple[tuple[dict[str, Any], Reason, str], ...] = (
    ({"protocol_version": 2}, Reason.PROTOCOL, "expected protocol version 1, got 2"),
    ({"handoff": "flags"}, Reason.ATTACH_REFUSED, "hand-off"),
    ({"generation": 0}, Reason.ATTACH_REFUSED, "generation"),
    ({"generation": 9}, Reason.ATTACH_REFUSED, "cannot be mapped"),
    ({"nonce": 5}, Reason.ATTACH_REFUSED, "cannot be mapped"),
    ({"side_socket": "/nowhere"}, Reason.ATTACH_REFUSED, "cannot be mapped"),
    ({"slots": 3}, Reason.ATTACH_REFUSED, "slot.length"),
    ({"widths": (9,)}, Reason.ATTACH_REFUSED, "larger than its tensors"),
    ({"buckets": ()}, Reason.ATTACH_REFUSED, "buckets"),
    ({"cuda_handle": b"x" * 64}, Reason.ATTACH_REFUSED, "device memory"),
)


async def test_a_wrong_offer_is_refused_by_name(folder: Path, fake: FakeArena) -> None:
    async with running(folder) as drafter:
        for changes, reason, words in WRONG_OFFERS:
            code, found, message = await _refusal(drafter.attach(fake.offer, **changes))
            assert (code, found) == (grpc.StatusCode.FAILED_PRECONDITION, reason), changes
            assert words in message, changes
            assert fake.listener.path not in message
        assert await drafter.generation() == 0
        await drafter.attach(fake.offer)


async def test_another_nonce_in_the_arena_is_refused(folder: Path, fake: FakeArena) -> None:
    async with running(folder) as drafter:
        fake.arena[attach.NONCE][0] += 1
        code, reason, message = await _refusal(drafter.attach(fake.offer))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, Reason.ATTACH_REFUSED)
        assert message.startswith("nonce")


async def test_checksums_decide(folder: Path) -> None:
    pair = write_tiny(folder / "pair", seed=2)
    block = load_block(pair.drafter)
    spec, size = block.spec, torch.Generator().manual_seed(2)
    embed_VD = torch.randn(320, spec.hidden_size, generator=size)
    context = torch.zeros(len(spec.layers), 2, 9, 16, spec.attention.kv_heads, spec.attention.head_dim)
    with fake_arena(folder / "side", embed_VD, context, block.revision) as fake:
        async with running(folder, proposer="dflash", model=str(pair.drafter)) as drafter:
            *_, message = await _refusal(drafter.attach(fake.offer, drafter_sha256="0" * 64))
            assert message.startswith("drafter checkpoint")
            code, _, message = await _refusal(drafter.attach(fake.offer, embedding_sha256="0" * 64))
            assert message.startswith("embedding checksum")
            assert code is grpc.StatusCode.DATA_LOSS, "weights can be sent again, unlike a checkpoint"
            *_, message = await _refusal(drafter.attach(fake.offer, widths=(4, 16)))
            assert "width 16 needs 15 drafts; this drafter proposes 7" in message
            answer = await drafter.attach(fake.offer)
            assert (answer.drafter.revision, answer.drafter.max_draft) == (block.revision, 7)


async def test_describe_counts_rounds_and_refuses_another_version(folder: Path, fake: FakeArena) -> None:
    fake.put(0, [3, 4, 3], epoch=1)
    fake.rows([0], 1)
    async with running(folder) as drafter:
        await drafter.attach(fake.offer)
        stream = drafter.pace()
        for number in (1, 2, 3):
            await ask(stream, number)
        found = await drafter.describe()
        assert (found.generation, found.rounds, found.drafter.proposer) == (1, 3, "ngram")
        code, reason, _ = await _refusal(drafter.describe(version=2))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, Reason.PROTOCOL)


async def test_bytes_that_are_no_message_are_refused(folder: Path) -> None:
    async with running(folder) as drafter:
        for method in ("Attach", "Describe"):
            code, reason, _ = await _refusal(drafter.raw(method, b"\x0a\xff\xff"))
            assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, Reason.MALFORMED)


async def test_a_refusal_leaves_the_earlier_attachment(folder: Path, fake: FakeArena) -> None:
    fake.put(0, [3, 4, 3], epoch=1)
    fake.rows([0], 1)
    async with running(folder) as drafter:
        await drafter.attach(fake.offer)
        stream = drafter.pace()
        await ask(stream, 1)
        await _refusal(drafter.attach(fake.offer, generation=2))
        assert (await ask(stream, 2)).round == 2


async def test_cycles_leave_nothing_behind(folder: Path, fake: FakeArena) -> None:
    inode = str(os.fstat(fake.arena.descriptors[0]).st_ino)
    fake.put(0, [3, 4, 3], epoch=1)
    fake.rows([0], 1)
    async with running(folder) as drafter:

        async def cycle(generation: int) -> tuple[int, int]:
            await drafter.attach(fake.renew(generation))
            stream = drafter.pace()
            await ask(stream, 1, generation=generation)
            await stream.done_writing()
            await freed(drafter)
            return len(os.listdir("/proc/self/fd")), mapped_arenas().count(inode)

        descriptors, maps = await cycle(1)
        for generation in range(2, CYCLES + 1):
            now_descriptors, now_maps = await cycle(generation)
        assert now_maps == maps
        assert now_descriptors < descriptors + CYCLES // 2
