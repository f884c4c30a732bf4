"""Checks of an attach request: its terms, the mapped arena, and whether this drafter belongs to it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.common import attach
from services.common.arena import Arena, MemfdArena
from services.common.attach import AttachOffer
from services.common.errors import Code, PacelineError, Reason
from services.common.side_socket import fetch_descriptors
from services.common.turns import Answer, Ask, TurnSocket, answering_end
from services.drafter.proposers import Proposer
from services.drafter.shared import Shared

HANDOFFS = ("host", "socket", "flags")


def refused(message: str) -> PacelineError:
    """The attachment is refused or gone."""
    return PacelineError(Code.FAILED_PRECONDITION, Reason.ATTACH_REFUSED, message)


def check_terms(offer: AttachOffer, proposer: Proposer) -> None:
    """Checks what needs no memory.

    Raises:
        PacelineError: ATTACH_REFUSED with the reason.
    """
    if offer.handoff not in HANDOFFS:
        raise refused(f"hand-off {offer.handoff!r} is not supported; supported: {', '.join(HANDOFFS)}")
    if offer.handoff == "flags" and not offer.cuda_handle:
        raise refused("hand-off by flags needs an arena on a GPU; this one is in host memory")
    if offer.handoff == "socket" and offer.cuda_handle:
        raise refused("hand-off by socket needs an arena in host memory; this one is on a GPU")
    if not (offer.generation and offer.slots and offer.block_size):
        raise refused("generation, slots and block size must be positive")
    if min(offer.buckets, default=0) < 1 or min(offer.widths, default=0) < 2:
        raise refused("buckets must be 1 or more and widths 2 or more")
    drafts, limit = max(offer.widths) - 1, proposer.max_draft
    if limit is not None and drafts > limit:
        raise refused(f"width {drafts + 1} needs {drafts} drafts; this drafter proposes {limit}")
    if proposer.revision and offer.drafter_sha256 != proposer.revision:
        theirs = offer.drafter_sha256 or "none"
        raise refused(f"drafter checkpoint: the target writes context for {theirs}, this one is {proposer.revision}")


@dataclass(frozen=True, slots=True)
class Mapped:
    """The arena, the pid of the process that shares it (0 when it is not visible), the connection for turns if any."""

    arena: Arena
    peer_pid: int
    turns: TurnSocket[Answer, Ask] | None = None

    def close(self) -> None:
        """Gives everything back."""
        if self.turns is not None:
            self.turns.close()
        self.arena.close()


def map_arena(offer: AttachOffer, device: torch.device) -> Mapped:
    """Maps the arena, and keeps the connection that it came by when turns are to be taken over it.

    Raises:
        PacelineError: ATTACH_REFUSED; internal names and paths stay out of the message.
    """
    try:
        if device.type == "cuda":
            return Mapped(_map_cuda(offer), offer.target_pid)
        return _map_memfd(offer)
    except (OSError, ValueError, RuntimeError) as error:
        raise refused("the arena cannot be mapped: its handle or its layout is not as offered") from error


def check_arena(arena: Arena, offer: AttachOffer, proposer: Proposer) -> Shared:
    """Checks the memory itself and looks its tensors up.

    Raises:
        PacelineError: ATTACH_REFUSED; says whether the nonce, a tensor or a checksum is wrong.
    """
    try:
        nonce = int(arena.tensor(attach.NONCE)[0])
        shared = Shared.of(arena, offer.block_size)
        _check_shapes(arena, offer)
        proposer.check(shared)
    except KeyError as error:
        raise refused(f"arena: tensor {error.args[0]} is missing") from error
    except ValueError as error:
        raise refused(f"arena: {error}") from error
    if nonce != offer.nonce:
        raise refused("nonce: the mapped arena is not the one that was offered")
    if shared.embed_VD is not None:
        _check_embedding(shared.embed_VD, shared.lm_head_VD, offer.embedding_sha256)
    return shared


def _map_memfd(offer: AttachOffer) -> Mapped:
    if offer.cuda_handle:
        raise refused("the arena is in device memory, this drafter runs on the CPU")
    fetched = fetch_descriptors(offer.side_socket, offer.generation, offer.nonce, len(offer.layout.segments))
    try:
        arena = MemfdArena.map(offer.layout, fetched.descriptors, attach.DRAFTER_WRITES)
    except BaseException:
        fetched.close()
        raise
    if offer.handoff == "socket":
        return Mapped(arena, fetched.peer_pid, answering_end(fetched.connection))
    fetched.connection.close()
    return Mapped(arena, fetched.peer_pid)


def _map_cuda(offer: AttachOffer) -> Arena:
    if not offer.cuda_handle:
        raise refused("the arena is in host memory, this drafter runs on a GPU")
    from services.common.arena.cuda import CudaArena

    return CudaArena.map(offer.layout, offer.cuda_handle, offer.gpu_uuid)


def _check_shapes(arena: Arena, offer: AttachOffer) -> None:
    tables, history = arena.tensor(attach.BLOCK_TABLE), arena.tensor(attach.HISTORY)
    rows, tokens = arena.tensor(attach.ROWS), arena.tensor(attach.TOKENS)
    if max(offer.buckets) > len(rows) or max(offer.widths) - 1 > tokens.shape[-1]:
        raise ValueError("a bucket or a width is larger than its tensors")
    shape = attach.ControlShape(offer.slots, tables.shape[-1], history.shape[-1], len(rows), tokens.shape[-1])
    for name, (sizes, dtype) in attach.control_tensors(shape).items():
        found = arena.tensor(name)
        if tuple(found.shape) != sizes or found.dtype != dtype:
            raise ValueError(f"{name} is {found.dtype} {tuple(found.shape)}, expected {dtype} {sizes}")


def _check_embedding(embed_VD: Tensor, lm_head_VD: Tensor | None, expected: str) -> None:
    if attach.embedding_sha256(embed_VD, lm_head_VD) != expected:
        raise refused("embedding checksum: the mapped weights are not the ones that were offered")
