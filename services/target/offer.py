"""Offers the arena to a drafter: nonce in shared memory, descriptors on the side socket, all else in the message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from services.common.arena import Layout
from services.common.attach import NONCE, AttachOffer, new_nonce
from services.common.side_socket import DescriptorListener


class SharedArena(Protocol):
    """The arena as far as an offer goes."""

    @property
    def descriptor(self) -> int:
        """The memory's descriptor."""
        ...

    def tensor(self, name: str) -> Tensor:
        """A tensor by name."""
        ...

    def layout(self) -> Layout:
        """Where the tensors are."""
        ...


class ArenaOffers(Protocol):
    """Makes one offer at a time."""

    def offer(self, generation: int) -> contextlib.AbstractContextManager[AttachOffer]:
        """An offer that stands while the context is open."""
        ...

    @property
    def claimed_by(self) -> int:
        """Pid of the process that took the last offer; 0 when unknown."""
        ...


@dataclass(frozen=True, slots=True)
class OfferTerms:
    """What stays the same over all offers of a target."""

    embedding_sha256: str
    drafter_sha256: str
    slots: int
    buckets: tuple[int, ...]
    widths: tuple[int, ...]
    block_size: int
    target_pid: int


class MemfdOffers:
    """Offers of an arena in a memfd, passed over a side socket in a folder that only this user may enter."""

    def __init__(self, arena: SharedArena, terms: OfferTerms, folder: Path) -> None:
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

    @contextlib.contextmanager
    def offer(self, generation: int) -> Iterator[AttachOffer]:
        """Puts the nonce into the arena and the descriptor on offer until the context ends."""
        nonce = new_nonce()
        self._arena.tensor(NONCE)[0] = nonce
        self._listener.offer(generation, nonce, [self._arena.descriptor])
        try:
            yield AttachOffer(
                generation=generation,
                nonce=nonce,
                layout=self._arena.layout(),
                side_socket=self._listener.path,
                embedding_sha256=self._terms.embedding_sha256,
                drafter_sha256=self._terms.drafter_sha256,
                slots=self._terms.slots,
                buckets=self._terms.buckets,
                widths=self._terms.widths,
                block_size=self._terms.block_size,
                target_pid=self._terms.target_pid,
            )
        finally:
            self._listener.withdraw()

    def close(self) -> None:
        """Stops listening and removes the socket."""
        self._listener.close()
