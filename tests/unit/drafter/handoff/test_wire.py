"""Hand-off by wire on the drafter's side: drafts in the answers, with the target's memory and without it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.common.pair.attach import AttachOffer
from services.common.pair.handoff import HandoffMode
from services.common.pair.wire import MAX_TEXT_TOKENS
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from tests.support.fakes_arena import SLOTS, FakeArena
from tests.support.tiny_checkpoints import write_tiny
from tests.unit.drafter.running import ask, freed, running

REFUSED, INVALID = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT


def bare(**changes: Any) -> AttachOffer:
    """An offer without memory."""
    offer = AttachOffer(
        generation=1, nonce=41, layout=None, embedding_sha256="", drafter_sha256="", slots=SLOTS, buckets=(1, 2, 4),
        widths=(4, 8), block_size=16, handoff=HandoffMode.WIRE, context_limit=64,
    )  # fmt: skip
    return replace(offer, **changes)


def text(slot: int, tokens: list[int], start: int = 0, epoch: int = 5) -> pb.SlotText:
    return pb.SlotText(slot=slot, epoch=epoch, start=start, token_ids=tokens)


def rows(answer: pb.PaceResponse) -> list[tuple[int, int, list[int]]]:
    return [(row.slot, row.epoch, list(row.token_ids)) for row in answer.drafts]


async def test_with_the_targets_memory_the_answer_carries_the_drafts(folder: Path, fake: FakeArena) -> None:
    fake.put(1, [7, 8, 9, 7], epoch=5)
    fake.put(3, [1, 2, 3], epoch=6)
    fake.rows([3, 1], 4)
    async with running(folder) as drafter:
        await drafter.attach(fake.offer, handoff="wire")
        answer = await ask(drafter.pace(), 10, bucket=4, rows=2)
        assert (answer.generation, answer.round) == (1, 10)
        assert rows(answer) == [(1, 5, [8, 9, 7])], "slot 3 repeats nothing: no draft"


async def test_texts_from_requests_are_drafted_from(folder: Path) -> None:
    async with running(folder) as drafter:
        answer = await drafter.attach(bare())
        assert (answer.nonce_reply, answer.drafter.proposer, answer.drafter.max_draft) == (42, "ngram", 7)
        stream = drafter.pace()
        first = await ask(stream, 1, bucket=2, rows=2, slots=[2, 0], texts=[text(2, [7, 8, 9, 7]), text(0, [1, 2])])
        assert rows(first) == [(2, 5, [8, 9, 7])]
        await stream.write(pb.PaceRequest(generation=1, texts=[text(0, [1], start=2)]))
        second = await ask(stream, 2, bucket=2, rows=2, slots=[0, 2], texts=[text(2, [9], start=4)])
        assert rows(second) == [(0, 5, [2, 1, 2]), (2, 5, [7, 9, 7])]
        third = await ask(stream, 3, slots=[0], texts=[text(0, [3, 3], epoch=6)])
        assert rows(third) == [(0, 6, [3, 3, 3])], "a slot that changed hands begins anew"


async def test_a_new_attachment_knows_no_text(folder: Path) -> None:
    async with running(folder) as drafter:
        await drafter.attach(bare())
        stream = drafter.pace()
        await ask(stream, 1, slots=[0], texts=[text(0, [1, 1])])
        await stream.done_writing()
        await freed(drafter)
        await drafter.attach(bare(generation=2))
        stream = drafter.pace()
        await stream.write(pb.PaceRequest(generation=2, round=2, bucket=1, width=4, rows=1, texts=[text(0, [1], 2)]))
        assert await stream.code() is INVALID
        assert "slot 0: tokens before position 2 are missing" in (await stream.details() or "")


WRONG: tuple[tuple[dict[str, Any], grpc.StatusCode, str], ...] = (
    ({"texts": [text(SLOTS, [1])]}, INVALID, "slot 4"),
    ({"texts": [text(2**32 - 1, [1])]}, INVALID, "slot"),
    ({"texts": [text(0, [])]}, INVALID, "token ids"),
    ({"texts": [text(0, [1] * 65)]}, INVALID, "token ids"),
    ({"texts": [text(0, [1], start=2**32 - 1)]}, INVALID, "missing"),
    ({"texts": [text(0, [1], epoch=2**64 - 1)]}, INVALID, "epoch"),
    ({"texts": [text(0, [2**31])]}, INVALID, "token ids"),
    ({"slots": [0] * 5}, INVALID, "slots"),
    ({"slots": [SLOTS]}, INVALID, "slots"),
    ({"generation": 99, "texts": [text(0, [1])]}, REFUSED, "generation 99"),
    ({"width": 0}, INVALID, "width"),
    ({"width": 5}, INVALID, "width"),
    ({"rows": 2}, INVALID, "rows"),
)


async def test_what_does_not_fit_ends_the_stream_by_name(folder: Path) -> None:
    async with running(folder) as drafter:
        for generation, (fields, code, words) in enumerate(WRONG, start=1):
            await drafter.attach(bare(generation=generation))
            stream = drafter.pace()
            right: dict[str, Any] = {"generation": generation, "round": 2, "bucket": 1, "width": 4, "rows": 1}
            await stream.write(pb.PaceRequest(**(right | fields)))
            assert await stream.code() is code, fields
            assert words in (await stream.details() or ""), fields
            await freed(drafter)


async def test_texts_are_for_drafters_without_the_memory_alone(folder: Path, fake: FakeArena) -> None:
    async with running(folder) as drafter:
        await drafter.attach(fake.offer, handoff="wire")
        stream = drafter.pace()
        await stream.write(pb.PaceRequest(generation=1, texts=[text(0, [1])]))
        assert await stream.code() is INVALID
        assert "shares memory" in (await stream.details() or "")


async def refusal(drafter: Any, offer: AttachOffer) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drafter.attach(offer)
    assert caught.value.code() is REFUSED
    return str(caught.value.details())


async def test_an_offer_without_memory_is_checked(folder: Path) -> None:
    async with running(folder) as drafter:
        for handoff in ("host", "socket"):
            assert "without an arena only 'wire'" in await refusal(drafter, bare(handoff=handoff))
        assert "context limit" in await refusal(drafter, bare(context_limit=0))
        assert "more than this drafter keeps" in await refusal(drafter, bare(context_limit=MAX_TEXT_TOKENS // SLOTS))
        assert "more than this drafter keeps" in await refusal(drafter, bare(buckets=(2**32 - 1,)))
        assert await drafter.generation() == 0


async def test_dflash_is_refused_by_name_where_no_memory_is_shared(folder: Path) -> None:
    pair = write_tiny(folder / "pair", seed=2)
    async with running(folder, proposer="dflash", model=str(pair.drafter)) as drafter:
        assert "proposer dflash reads the target's memory" in await refusal(drafter, bare())
