"""Maps the arena that a target offers; where no memory is shared, one of the drafter's own stands in its place."""

import contextlib
import socket
from dataclasses import dataclass

import torch

from services.common.pair import attach
from services.common.pair.arena import Arena, Layout, MemfdArena
from services.common.pair.attach import AttachOffer, ControlShape
from services.common.pair.handoff import HandoffMode
from services.common.pair.side_socket import fetch_descriptors
from services.drafter.errors import refused


@dataclass(frozen=True, slots=True)
class Mapped:
    """The arena, the pid of the process that shares it (0 when it is not visible), and the connection it came by.

    There is none where the arena is the drafter's own, or is on a GPU and the side socket out of reach.
    """

    arena: Arena
    peer_pid: int
    connection: socket.socket | None = None

    def close(self) -> None:
        """Gives everything back; closing twice is harmless."""
        if self.connection is not None:
            self.connection.close()
        self.arena.close()


def map_arena(offer: AttachOffer, device: torch.device) -> Mapped:
    """Maps the arena and keeps the connection that it came by.

    Where no memory is shared the drafter's own stands in its place.

    Raises:
        PacelineError: ATTACH_REFUSED; internal names and paths stay out of the message.
    """
    try:
        if offer.layout is None:
            return Mapped(_own_arena(offer, device), 0)
        if device.type == "cuda":
            return Mapped(_map_cuda(offer, offer.layout), offer.target_pid, _connected(offer))
        return _map_memfd(offer, offer.layout)
    except (OSError, ValueError, RuntimeError) as error:
        raise refused("the arena cannot be mapped: its handle or its layout is not as offered") from error


def _own_arena(offer: AttachOffer, device: torch.device) -> Arena:
    """Memory of the drafter's own in the place of a target's, for texts and drafts."""
    shape = ControlShape(
        slots=offer.slots,
        max_blocks=1,
        context=offer.context_limit,
        max_bucket=max(offer.buckets),
        max_draft=offer.widest - 1,
    )
    arena = _allocate(attach.control_tensors(shape), device)
    arena.tensor(attach.NONCE)[0] = offer.nonce
    return arena


def _allocate(spec: dict[str, tuple[tuple[int, ...], torch.dtype]], device: torch.device) -> Arena:
    if device.type == "cpu":
        return MemfdArena.create(spec)
    from services.common.pair.arena.cuda import CudaArena

    return CudaArena.create(spec)


def _map_memfd(offer: AttachOffer, layout: Layout) -> Mapped:
    if offer.cuda_handle:
        raise refused("the arena is in device memory, this drafter runs on the CPU")
    fetched = fetch_descriptors(offer.side_socket, offer.generation, offer.nonce, len(layout.segments))
    try:
        arena = MemfdArena.map(layout, fetched.descriptors, attach.DRAFTER_WRITES)
    except BaseException:
        fetched.close()
        raise
    return Mapped(arena, fetched.peer_pid, fetched.connection)


def _connected(offer: AttachOffer) -> socket.socket | None:
    """The side socket's connection for turns; none where containers share a GPU and no folder."""
    if not offer.side_socket or offer.handoff is not HandoffMode.FLAGS:
        return None
    with contextlib.suppress(OSError):
        return fetch_descriptors(offer.side_socket, offer.generation, offer.nonce, 0).connection
    return None


def _map_cuda(offer: AttachOffer, layout: Layout) -> Arena:
    if not offer.cuda_handle:
        raise refused("the arena is in host memory, this drafter runs on a GPU")
    from services.common.pair.arena.cuda import CudaArena

    return CudaArena.map(layout, offer.cuda_handle, offer.gpu_uuid)
