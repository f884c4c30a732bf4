"""Checks of an attach request: its terms, the mapped arena, and whether this drafter belongs to it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.pair import attach
from services.common.pair.arena import Arena, Layout, MemfdArena
from services.common.pair.attach import AttachOffer
from services.common.pair.side_socket import fetch_descriptors
from services.common.pair.turns import Answer, Ask, TurnSocket, answering_end
from services.common.pair.wire import MAX_TEXT_TOKENS
from services.common.request.errors import Code, PacelineError, Reason
from services.drafter.proposers import Proposer
from services.drafter.shared import Shared
from services.drafter.wire import own_arena

HANDOFFS = ("host", "socket", "flags", "wire")


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
    if offer.layout is None:
        _check_no_memory(offer, proposer)
    drafts, limit = max(offer.widths) - 1, proposer.max_draft
    if limit is not None and drafts > limit:
        raise refused(f"width {drafts + 1} needs {drafts} drafts; this drafter proposes {limit}")
    if proposer.revision and offer.drafter_sha256 != proposer.revision:
        theirs = offer.drafter_sha256 or "none"
        raise refused(f"drafter checkpoint: the target writes context for {theirs}, this one is {proposer.revision}")


def _check_no_memory(offer: AttachOffer, proposer: Proposer) -> None:
    if offer.handoff != "wire":
        raise refused(f"hand-off {offer.handoff!r} needs shared memory; without an arena only 'wire' is possible")
    if proposer.reads_memory:
        raise refused(f"proposer {proposer.kind} reads the target's memory, and this target shares none; ngram can")
    if not offer.context_limit:
        raise refused("without an arena the context limit must be positive")
    words = (offer.slots + 1) * (offer.context_limit + max(offer.widths)) + max(offer.buckets)
    if words > MAX_TEXT_TOKENS:
        raise refused(
            f"texts of {offer.slots} slots with {offer.context_limit} tokens are more than this drafter keeps"
        )


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

    Where no memory is shared the drafter's own stands in its place.

    Raises:
        PacelineError: ATTACH_REFUSED; internal names and paths stay out of the message.
    """
    try:
        if offer.layout is None:
            return Mapped(own_arena(offer, device), 0)
        if device.type == "cuda":
            return Mapped(_map_cuda(offer, offer.layout), offer.target_pid)
        return _map_memfd(offer, offer.layout)
    except (OSError, ValueError, RuntimeError) as error:
        raise refused("the arena cannot be mapped: its handle or its layout is not as offered") from error


def check_arena(arena: Arena, offer: AttachOffer, proposer: Proposer) -> Shared:
    """Checks the memory itself and looks its tensors up.

    Raises:
        PacelineError: ATTACH_REFUSED; says whether the nonce, a tensor or a checksum is wrong. The latter is
            DATA_LOSS: the target can send its weights again.
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


def _map_memfd(offer: AttachOffer, layout: Layout) -> Mapped:
    if offer.cuda_handle:
        raise refused("the arena is in device memory, this drafter runs on the CPU")
    fetched = fetch_descriptors(offer.side_socket, offer.generation, offer.nonce, len(layout.segments))
    try:
        arena = MemfdArena.map(layout, fetched.descriptors, attach.DRAFTER_WRITES)
    except BaseException:
        fetched.close()
        raise
    if offer.handoff == "socket":
        return Mapped(arena, fetched.peer_pid, answering_end(fetched.connection))
    fetched.connection.close()
    return Mapped(arena, fetched.peer_pid)


def _map_cuda(offer: AttachOffer, layout: Layout) -> Arena:
    if not offer.cuda_handle:
        raise refused("the arena is in host memory, this drafter runs on a GPU")
    from services.common.pair.arena.cuda import CudaArena

    return CudaArena.map(layout, offer.cuda_handle, offer.gpu_uuid)


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
        message = "embedding checksum: the mapped weights are not the ones that were offered"
        raise PacelineError(Code.DATA_LOSS, Reason.ATTACH_REFUSED, message)
