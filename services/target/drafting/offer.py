"""Offers the arena to a drafter: a nonce in shared memory, descriptors on the side socket, the rest in the message.

A drafter that can map no memory is offered the terms alone.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import torch

from services.common.pair.arena import Arena, MemfdArena
from services.common.pair.attach import FOLLOWED, NONCE, AttachOffer, new_nonce
from services.common.pair.handoff import HandoffMode
from services.common.pair.side_socket import DescriptorListener

if TYPE_CHECKING:
    from services.common.pair.arena.cuda import CudaArena


class ArenaOffers(Protocol):
    """Makes one offer at a time."""

    def offer(self, generation: int) -> contextlib.AbstractContextManager[AttachOffer]:
        """An offer that stands while the context is open."""
        ...

    @property
    def claimed_by(self) -> int:
        """Pid of the process that took the last offer; 0 when unknown."""
        ...

    def take_connection(self) -> socket.socket | None:
        """The connection that the drafter keeps from the present offer, for turns; the caller's from now on."""
        ...


@dataclass(frozen=True, slots=True)
class OfferConstants:
    """What stays the same over all offers of a target."""

    embedding_sha256: str
    drafter_sha256: str
    slots: int
    buckets: tuple[int, ...]
    widths: tuple[int, ...]
    block_size: int
    target_pid: int
    handoff: HandoffMode = HandoffMode.HOST
    context_limit: int = 0
    trees: tuple[int, ...] = ()


class Offers(ArenaOffers, Protocol):
    """Offers that hold something until closed."""

    def close(self) -> None:
        """Ends the present offer and frees what offers hold."""
        ...


class MemfdOffers:
    """Offers of an arena in memory files, passed over a side socket in a folder that only this user may enter."""

    def __init__(self, arena: MemfdArena, terms: OfferConstants, folder: Path) -> None:
        """Listens on the side socket.

        Raises:
            OSError: The folder or socket cannot be made.
        """
        self._arena = arena
        self._terms = terms
        self._listener = DescriptorListener(folder)

    @property
    def claimed_by(self) -> int:
        """Pid of the process that took the last offer; 0 when unknown."""
        return self._listener.claimed_by

    def take_connection(self) -> socket.socket | None:
        """The connection that the drafter keeps from the present offer, for turns; the caller's from now on."""
        return self._listener.take_connection()

    @contextlib.contextmanager
    def offer(self, generation: int) -> Iterator[AttachOffer]:
        """Puts the nonce into the arena and the descriptors on offer until the context ends."""
        nonce = new_nonce()
        self._arena.tensor(NONCE)[0] = nonce
        self._listener.offer(generation, nonce, self._arena.descriptors)
        try:
            plain = _offer(generation, nonce, self._arena, self._terms)
            yield replace(plain, side_socket=self._listener.path)
        finally:
            self._listener.withdraw()

    def close(self) -> None:
        """Stops listening and removes the socket."""
        self._listener.close()


class CudaOffers:
    """Offers of an arena on a GPU, by its IPC handle; this tells nothing of who opens it.

    A side socket beside it carries turns alone. A drafter that does not reach it is asked by Pace.
    """

    claimed_by = 0

    def __init__(self, arena: CudaArena, terms: OfferConstants, folder: Path | None = None) -> None:
        """Listens in a folder, where there is one and a socket can be made."""
        self._arena = arena
        self._terms = terms
        self._listener: DescriptorListener | None = None
        if folder is not None:
            with contextlib.suppress(OSError):
                self._listener = DescriptorListener(folder)

    def take_connection(self) -> socket.socket | None:
        """The connection that the drafter keeps from the present offer, for turns; the caller's from now on."""
        return None if self._listener is None else self._listener.take_connection()

    @contextlib.contextmanager
    def offer(self, generation: int) -> Iterator[AttachOffer]:
        """Puts the nonce into the arena.

        The numbers that a drafter's steps use as indices (FOLLOWED) are zeroed until the engine publishes them. A
        drafter that is gone may have left numbers that lead out of the arena, and the next one captures its steps
        before it is attached.
        """
        nonce = new_nonce()
        for name in FOLLOWED:
            self._arena.tensor(name).zero_()
        self._arena.tensor(NONCE)[0] = nonce
        torch.cuda.synchronize()
        plain = _offer(generation, nonce, self._arena, self._terms)
        plain = replace(plain, cuda_handle=self._arena.handle, gpu_uuid=self._arena.gpu_uuid)
        if self._listener is None:
            yield plain
            return
        self._listener.offer(generation, nonce, ())
        try:
            yield replace(plain, side_socket=self._listener.path)
        finally:
            self._listener.withdraw()

    def close(self) -> None:
        """Stops listening and removes the socket."""
        if self._listener is not None:
            self._listener.close()


class BareOffers:
    """Offers without memory, for drafters that cannot map any; this tells nothing of who takes them."""

    claimed_by = 0

    def __init__(self, terms: OfferConstants) -> None:
        """Needs nothing but the terms."""
        self._terms = terms

    def take_connection(self) -> socket.socket | None:
        """The connection of the side socket: there is none."""
        return None

    @contextlib.contextmanager
    def offer(self, generation: int) -> Iterator[AttachOffer]:
        """The terms alone; the target's pid means nothing where the drafter runs."""
        plain = _offer(generation, new_nonce(), None, self._terms)
        yield replace(plain, target_pid=0, context_limit=self._terms.context_limit)

    def close(self) -> None:
        """Does nothing."""


def make_offers(arena: Arena, terms: OfferConstants, folder: Path, shares_memory: bool = True) -> Offers:
    """Offers that fit the arena, or that leave it out; ``folder`` is for the side socket.

    Without a name it is none, and an arena on a GPU does without.
    """
    if not shares_memory:
        return BareOffers(terms)
    if isinstance(arena, MemfdArena):
        return MemfdOffers(arena, terms, folder)
    return CudaOffers(cast("CudaArena", arena), terms, folder if folder.name else None)


def _offer(generation: int, nonce: int, arena: Arena | None, terms: OfferConstants) -> AttachOffer:
    return AttachOffer(
        generation=generation,
        nonce=nonce,
        layout=None if arena is None else arena.layout(),
        embedding_sha256=terms.embedding_sha256,
        drafter_sha256=terms.drafter_sha256,
        slots=terms.slots,
        buckets=terms.buckets,
        widths=terms.widths,
        trees=terms.trees,
        block_size=terms.block_size,
        target_pid=terms.target_pid,
        handoff=terms.handoff,
    )
