"""Attach messages between protobuf and the values of `services.common.pair.attach`."""

from services.common.pair.arena import Layout, TensorEntry
from services.common.pair.arena.layout import ArenaKind
from services.common.pair.attach import AttachOffer, DrafterInfo
from services.common.pair.handoff import HandoffMode
from services.common.pb.paceline.v1 import drafter_pb2 as pb
from services.common.request.errors import Code, PacelineError, Reason


def offer_to_pb(offer: AttachOffer) -> pb.AttachRequest:
    """The request that a target sends."""
    return pb.AttachRequest(
        protocol_version=offer.protocol_version,
        generation=offer.generation,
        nonce=offer.nonce,
        arena=_arena_to_pb(offer, offer.layout) if offer.layout is not None else None,
        embedding_sha256=offer.embedding_sha256,
        drafter_sha256=offer.drafter_sha256,
        slots=offer.slots,
        buckets=offer.buckets,
        widths=offer.widths,
        trees=offer.trees,
        block_size=offer.block_size,
        handoff=offer.handoff,
        target_pid=offer.target_pid,
        context_limit=offer.context_limit,
    )


def offer_from_pb(message: pb.AttachRequest) -> AttachOffer:
    """The offer that a drafter received.

    Raises:
        PacelineError: ATTACH_REFUSED: the hand-off has a name that is not known here.
        ValueError: an arena has no segments, or some by descriptors out of order, or some of each kind.
    """
    arena = message.arena
    return AttachOffer(
        generation=message.generation,
        nonce=message.nonce,
        layout=_layout_from_pb(arena) if message.HasField("arena") else None,
        embedding_sha256=message.embedding_sha256,
        drafter_sha256=message.drafter_sha256,
        slots=message.slots,
        buckets=tuple(message.buckets),
        widths=tuple(message.widths),
        trees=tuple(message.trees),
        block_size=message.block_size,
        side_socket=arena.side_socket,
        cuda_handle=arena.segments[0].cuda_ipc if arena.segments else b"",
        gpu_uuid=arena.gpu_uuid,
        handoff=_handoff(message.handoff),
        target_pid=message.target_pid,
        context_limit=message.context_limit,
        protocol_version=message.protocol_version,
    )


def info_to_pb(info: DrafterInfo) -> pb.DrafterInfo:
    """What a drafter says of itself, as a message."""
    return pb.DrafterInfo(
        proposer=info.proposer,
        revision=info.revision,
        max_draft=info.max_draft,
        pid=info.pid,
        instance_id=info.instance_id,
        device=info.device,
    )


def info_from_pb(message: pb.DrafterInfo) -> DrafterInfo:
    """What a drafter said of itself."""
    return DrafterInfo(
        proposer=message.proposer,
        revision=message.revision,
        max_draft=message.max_draft,
        pid=message.pid,
        instance_id=message.instance_id,
        device=message.device,
    )


def _arena_to_pb(offer: AttachOffer, layout: Layout) -> pb.ArenaLayout:
    segments = [
        pb.SharedSegment(size=size, cuda_ipc=offer.cuda_handle)
        if offer.cuda_handle
        else pb.SharedSegment(size=size, descriptor_index=index)
        for index, size in enumerate(layout.segments)
    ]
    tensors = [
        pb.SharedTensor(
            name=entry.name, segment=entry.segment, offset=entry.offset, shape=entry.shape, dtype=entry.dtype
        )
        for entry in layout.tensors
    ]
    return pb.ArenaLayout(segments=segments, tensors=tensors, side_socket=offer.side_socket, gpu_uuid=offer.gpu_uuid)


def _handoff(name: str) -> HandoffMode:
    try:
        return HandoffMode(name)
    except ValueError:
        message = f"hand-off {name!r} is not supported; supported: {', '.join(HandoffMode)}"
        raise PacelineError(Code.FAILED_PRECONDITION, Reason.ATTACH_REFUSED, message) from None


def _layout_from_pb(arena: pb.ArenaLayout) -> Layout:
    handles = {segment.WhichOneof("handle") for segment in arena.segments}
    kind: ArenaKind = "cuda" if handles == {"cuda_ipc"} else "memfd"
    in_order = [segment.descriptor_index for segment in arena.segments] == list(range(len(arena.segments)))
    if kind == "memfd" and not (handles == {"descriptor_index"} and in_order):
        raise ValueError("the arena must be segments by descriptor, in order, or on a GPU")
    entries = tuple(
        TensorEntry(
            name=tensor.name,
            dtype=tensor.dtype,
            shape=tuple(tensor.shape),
            offset=tensor.offset,
            segment=tensor.segment,
        )
        for tensor in arena.tensors
    )
    return Layout(kind, tuple(segment.size for segment in arena.segments), entries)
