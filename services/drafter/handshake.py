"""Checks of an attach request: its terms, the mapped arena, and whether this drafter belongs to it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from services.common.model.drafters.nodes import CANDIDATES
from services.common.pair import attach
from services.common.pair.arena import Arena
from services.common.pair.attach import AttachOffer
from services.common.pair.handoff import HandoffMode
from services.common.pair.wire import MAX_TEXT_TOKENS
from services.common.request.errors import Code, PacelineError, Reason
from services.drafter.arena_view import ArenaView
from services.drafter.errors import refused
from services.drafter.proposers import Proposer


def check_terms(offer: AttachOffer, proposer: Proposer) -> None:
    """Checks what needs no memory.

    Raises:
        PacelineError: ATTACH_REFUSED with the reason.
    """
    if offer.handoff is HandoffMode.FLAGS and not offer.cuda_handle:
        raise refused("hand-off by flags needs an arena on a GPU; this one is in host memory")
    if offer.handoff is HandoffMode.SOCKET and offer.cuda_handle:
        raise refused("hand-off by socket needs an arena in host memory; this one is on a GPU")
    if not (offer.generation and offer.slots and offer.block_size):
        raise refused("generation, slots and block size must be positive")
    if min(offer.buckets, default=0) < 1 or min((*offer.widths, *offer.trees), default=0) < 2:
        raise refused("buckets must be 1 or more and widths 2 or more")
    if offer.layout is None:
        _check_no_memory(offer, proposer)
    if proposer.max_draft is not None:
        _check_widths(offer, proposer.max_draft)
    if proposer.revision and offer.drafter_sha256 != proposer.revision:
        theirs = offer.drafter_sha256 or "none"
        raise refused(f"drafter checkpoint: the target writes context for {theirs}, this one is {proposer.revision}")


def _check_widths(offer: AttachOffer, most: int) -> None:
    """Of a tree each position may have several drafts."""
    for widths, limit in ((offer.widths, most), (offer.trees, most * CANDIDATES)):
        drafts = max(widths, default=1) - 1
        if drafts > limit:
            raise refused(f"width {drafts + 1} needs {drafts} drafts; this drafter proposes {limit}")


def _check_no_memory(offer: AttachOffer, proposer: Proposer) -> None:
    if offer.handoff is not HandoffMode.WIRE:
        raise refused(f"hand-off '{offer.handoff}' needs shared memory; without an arena only 'wire' is possible")
    if proposer.reads_memory:
        raise refused(f"proposer {proposer.kind} reads the target's memory, and this target shares none; ngram can")
    if not offer.context_limit:
        raise refused("without an arena the context limit must be positive")
    words = (offer.slots + 1) * (offer.context_limit + offer.widest) + max(offer.buckets)
    if words > MAX_TEXT_TOKENS:
        raise refused(
            f"texts of {offer.slots} slots with {offer.context_limit} tokens are more than this drafter keeps"
        )


def check_arena(arena: Arena, offer: AttachOffer, proposer: Proposer) -> ArenaView:
    """Checks the memory itself, but for the weights in it, and looks its tensors up.

    Raises:
        PacelineError: ATTACH_REFUSED; says whether the nonce or a tensor is wrong.
    """
    try:
        nonce = int(arena.tensor(attach.NONCE)[0])
        shared = ArenaView.of(arena, offer.block_size)
        _check_shapes(arena, offer)
        proposer.check(shared)
    except KeyError as error:
        raise refused(f"arena: tensor {error.args[0]} is missing") from error
    except ValueError as error:
        raise refused(f"arena: {error}") from error
    if nonce != offer.nonce:
        raise refused("nonce: the mapped arena is not the one that was offered")
    return shared


def _check_shapes(arena: Arena, offer: AttachOffer) -> None:
    tables, history = arena.tensor(attach.BLOCK_TABLE), arena.tensor(attach.HISTORY)
    rows, tokens = arena.tensor(attach.ROWS), arena.tensor(attach.TOKENS)
    if max(offer.buckets) > len(rows) or offer.widest - 1 > tokens.shape[-1]:
        raise ValueError("a bucket or a width is larger than its tensors")
    sizes_of = offer.slots, tables.shape[-1], history.shape[-1], len(rows), tokens.shape[-1]
    shape = attach.ControlShape(*sizes_of, nodes=bool(offer.trees))
    for name, (sizes, dtype) in attach.control_tensors(shape).items():
        found = arena.tensor(name)
        if tuple(found.shape) != sizes or found.dtype != dtype:
            raise ValueError(f"{name} is {found.dtype} {tuple(found.shape)}, expected {dtype} {sizes}")


@contextmanager
def weights_checked(shared: ArenaView, expected: str) -> Iterator[None]:
    """Hashes the shared weights in a thread beside the block, and compares behind it. Steps only read them.

    Raises:
        PacelineError: ATTACH_REFUSED with DATA_LOSS, for the target can send its weights again.
    """
    if shared.embed_VD is None:
        yield
        return
    with ThreadPoolExecutor(1, "sha256") as thread:
        found = thread.submit(attach.embedding_sha256, shared.embed_VD, shared.lm_head_VD)
        yield
    if found.result() != expected:
        message = "embedding checksum: the mapped weights are not the ones that were offered"
        raise PacelineError(Code.DATA_LOSS, Reason.ATTACH_REFUSED, message)
