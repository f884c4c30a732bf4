"""The attach contract: shapes, checksums, and messages that come back as they were."""

from dataclasses import replace

import pytest
import torch

from services.common.pair import attach
from services.common.pair.arena import plan_layout
from services.common.pair.attach import AttachOffer, ControlShape, DrafterInfo
from services.common.pair.attach_convert import info_from_pb, info_to_pb, offer_from_pb, offer_to_pb
from services.common.pair.handoff import HandoffMode
from services.common.pb.paceline.v1 import drafter_pb2 as pb

SHAPE = ControlShape(slots=3, max_blocks=5, context=70, max_bucket=4, max_draft=7)


def _offer() -> AttachOffer:
    return AttachOffer(
        generation=2**40,
        nonce=attach.new_nonce(),
        layout=plan_layout("memfd", attach.control_tensors(SHAPE), attach.DRAFTER_WRITES),
        embedding_sha256="ab",
        drafter_sha256="cd",
        slots=3,
        buckets=(1, 2, 4),
        widths=(4, 8),
        block_size=16,
        side_socket="/run/arena.sock",
        target_pid=77,
    )


def test_every_slot_tensor_has_a_pad_slot() -> None:
    tensors = attach.control_tensors(SHAPE)
    assert tensors[attach.TOKENS] == ((4, 7), torch.int32)
    assert tensors[attach.TAG] == ((4, 3), torch.int64)
    assert all(shape[0] == 4 for name, (shape, _) in tensors.items() if name.startswith(("slot.", "mailbox.")))


@pytest.mark.parametrize("handle", [b"", b"h" * 64])
def test_offer_survives_the_wire(handle: bytes) -> None:
    offer = _offer()
    if handle:
        layout = plan_layout("cuda", attach.control_tensors(SHAPE))
        offer = replace(offer, layout=layout, cuda_handle=handle, gpu_uuid="GPU-1", side_socket="")
    wire = pb.AttachRequest.FromString(offer_to_pb(offer).SerializeToString())
    assert offer_from_pb(wire) == offer


def test_an_offer_without_memory_survives_the_wire() -> None:
    offer = replace(_offer(), layout=None, side_socket="", handoff=HandoffMode.WIRE, context_limit=40_960)
    message = pb.AttachRequest.FromString(offer_to_pb(offer).SerializeToString())
    assert not message.HasField("arena")
    assert offer_from_pb(message) == offer


@pytest.mark.parametrize("extra", [{}, {"descriptor_index": 1}, {"descriptor_index": 7}, {"cuda_ipc": b"h" * 64}])
def test_segments_that_cannot_be_told_apart_are_no_offer(extra: dict[str, object]) -> None:
    message = offer_to_pb(_offer())
    message.arena.segments.add(size=1, **extra)
    with pytest.raises(ValueError, match="segments by descriptor"):
        offer_from_pb(message)


def test_what_a_drafter_writes_has_a_segment_of_its_own() -> None:
    layout = _offer().layout
    assert layout is not None
    assert {entry.name for entry in layout.tensors if entry.segment == 1} == {attach.TOKENS, attach.TAG}


def test_drafter_info_survives_the_wire() -> None:
    info = DrafterInfo("ngram", "", 7, 12, "instance", "cpu")
    assert info_from_pb(pb.DrafterInfo.FromString(info_to_pb(info).SerializeToString())) == info


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_checksum_sees_every_weight(dtype: torch.dtype) -> None:
    embed_VD, head_VD = torch.ones(9, 4, dtype=dtype), torch.zeros(9, 4, dtype=dtype)
    untied = attach.embedding_sha256(embed_VD, head_VD)
    assert len({untied, attach.embedding_sha256(embed_VD, None), attach.embedding_sha256(head_VD, embed_VD)}) == 3
    assert attach.embedding_sha256(embed_VD.clone(), head_VD.clone()) == untied
    head_VD[8, 3] = 1
    assert attach.embedding_sha256(embed_VD, head_VD) != untied


def test_nonces_fit_a_signed_word_and_differ() -> None:
    nonces = {attach.new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(0 < nonce < 2**62 + 1 for nonce in nonces)
