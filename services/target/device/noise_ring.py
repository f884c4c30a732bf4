"""Gumbel noise of the positions that come next, computed before it is needed.

The noise of a position depends on the seed and the position alone, so it can be made while the drafter works. The ring
keeps it until the position is committed. It is filled by aligned pages of positions, so that many rounds share the
fixed cost of a call.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.device.noise import gumbel

PAGE = 8


class Head(NamedTuple):
    """The next position of a slot whose token is to be chosen, and the seed its noise comes from."""

    slot: int
    seed: int
    position: int


class NoiseRing:
    """Noise by slot and position; `ring_TV` is `[(slots + 1) * ring positions, vocabulary]`, indexed by `point`."""

    def __init__(self, slots: int, max_width: int, ring_TV: Tensor, copy_TV: Tensor | None = None) -> None:
        """`ring_TV` is of `ring_shape`. So is `copy_TV`, from which a drafter draws with the same noise."""
        self._pages = _pages(max_width)
        self._max_width = max_width
        self.ring_TV = ring_TV
        self._copy_TV = copy_TV
        self._held: list[list[int]] = [[-1] * self._pages for _ in range(slots + 1)]

    def forget(self, slot: int) -> None:
        """Drops what a slot holds; call it when the slot gets another request."""
        self._held[slot] = [-1] * self._pages

    def fill(self, heads: list[Head], width: int) -> None:
        """Computes what is missing of the noise of `width` positions from each head on, and of the draft after them."""
        missing: list[tuple[int, int, int]] = []
        for slot, seed, first in heads:
            held = self._held[slot]
            for page in range(first // PAGE, (first + width + self._max_width - 1) // PAGE + 1):
                if held[page % self._pages] != page:
                    held[page % self._pages] = page
                    missing.append((slot, seed, page))
        if missing:
            self._compute(missing)

    def point(self, index_T: Tensor, heads: list[Head], width: int) -> None:
        """Writes the rows of `ring_TV` that hold `width` positions of each head into `index_T`, head by head."""
        span = self._pages * PAGE
        rows = [head.slot * span + (head.position + j) % span for head in heads for j in range(width)]
        index_T[: len(rows)].copy_(torch.tensor(rows))

    def _compute(self, missing: list[tuple[int, int, int]]) -> None:
        seeds_B = torch.tensor([_signed(seed) for _, seed, _ in missing], dtype=torch.int64)
        first_B1 = torch.tensor([[page * PAGE] for _, _, page in missing], dtype=torch.int64)
        vocab, dtype = self.ring_TV.shape[1], self.ring_TV.dtype
        noise_BPV = gumbel(seeds_B, first_B1 + torch.arange(PAGE), vocab, dtype)
        for (slot, _, page), noise_PV in zip(missing, noise_BPV, strict=True):
            start = (slot * self._pages + page % self._pages) * PAGE
            self.ring_TV[start : start + PAGE].copy_(noise_PV)
            if self._copy_TV is not None:
                self._copy_TV[start : start + PAGE].copy_(noise_PV)


class KernelNoise:
    """Replaces the ring where the accept kernel makes the noise itself, from the seeds of the slots."""

    ring_TV = None

    def forget(self, slot: int) -> None:
        """Does nothing: no noise is kept."""

    def fill(self, heads: list[Head], width: int) -> None:
        """Does nothing: no noise is made ahead."""

    def point(self, index_T: Tensor, heads: list[Head], width: int) -> None:
        """Does nothing: no noise is read."""


def ring_shape(slots: int, vocab: int, max_width: int) -> tuple[int, int]:
    """[(slots + 1) * positions held for each, vocabulary]."""
    return (slots + 1) * _pages(max_width) * PAGE, vocab


def bytes_per_slot(vocab: int, max_width: int, dtype: torch.dtype) -> int:
    """Bytes that the ring holds for one slot."""
    return _pages(max_width) * PAGE * vocab * dtype.itemsize


def _pages(max_width: int) -> int:
    """Pages that two spans of `max_width` positions in a row can touch, wherever they start."""
    return -(-2 * max_width // PAGE) + 1


def _signed(seed: int) -> int:
    return seed - (1 << 64) if seed >= 1 << 63 else seed
