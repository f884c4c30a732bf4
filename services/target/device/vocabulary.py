"""Which tokens an output may hold, as masks: some ids alone, and no sequence that is banned."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.common.request.constraint import Words

Array = NDArray[Any]
WORD = 32
LEFT = -1
"""A word of a mask whose bits are all set."""


class Vocabulary:
    """The rules of one request about single tokens, and those about tokens behind others."""

    def __init__(self, words: Words) -> None:
        """Sorts the banned sequences by the token before their last one."""
        self._words = words
        self._mask_N: Array = np.zeros(0, dtype=np.int32)
        self._behind: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for word in words.banned:
            if len(word) > 1:
                self._behind[word[-2]].append(word)
        self.longest = max((len(word) - 1 for word in words.banned), default=0)

    def narrow(self, mask_N: Array, text: Sequence[int]) -> None:
        """Takes out what may not follow on the last `longest` tokens of a text, unless nothing would be left."""
        if len(self._mask_N) != len(mask_N):
            self._mask_N = self._made(len(mask_N))
        narrowed_N = mask_N & self._mask_N
        if narrowed_N.any():
            mask_N[:] = narrowed_N
        if text and (words := self._behind.get(text[-1])):
            ends = [word[-1] for word in words if tuple(text[-len(word) + 1 :]) == word[:-1]]
            without(mask_N, ends)

    def _made(self, size: int) -> Array:
        """What every row may hold, whatever stands before it."""
        mask_N = np.full(size, 0 if self._words.allowed else LEFT, dtype=np.int32)
        for token in self._words.allowed:
            set_bit(mask_N, token)
        without(mask_N, [word[0] for word in self._words.banned if len(word) == 1])
        return mask_N


def set_bit(mask_N: Array, token: int) -> None:
    """Allows a token."""
    mask_N.view(np.uint32)[token // WORD] |= np.uint32(1 << token % WORD)


def only_each(masks_WN: Array, tokens: Sequence[int]) -> None:
    """Has the first masks allow nothing but one of the tokens each, in their order."""
    if tokens:
        masks_WN[: len(tokens)] = 0
        words_WN = masks_WN.view(np.uint32)
        for row, token in enumerate(tokens):
            words_WN[row, token // WORD] = 1 << token % WORD


def clear_bit(mask_N: Array, token: int) -> None:
    """Forbids a token."""
    mask_N.view(np.uint32)[token // WORD] &= np.uint32(~(1 << token % WORD) & 0xFFFFFFFF)


def has_bit(mask_N: Array, token: int) -> bool:
    """Whether a token is allowed."""
    return bool(mask_N.view(np.uint32)[token // WORD] >> np.uint32(token % WORD) & np.uint32(1))


def with_any(masks_WN: Array, tokens: Sequence[int]) -> Iterator[Array]:
    """Those masks that allow any of the tokens."""
    ids = np.array(tokens, np.int64)
    bits_WT = masks_WN.view(np.uint32)[:, ids // WORD] >> (ids % WORD).astype(np.uint32) & np.uint32(1)
    return (masks_WN[row] for row in np.flatnonzero(bits_WT.any(1)))


def without(mask_N: Array, tokens: Sequence[int]) -> None:
    """Takes tokens from a mask, unless they are all that it allows."""
    if not tokens:
        return
    left_N = mask_N.copy()
    for token in tokens:
        clear_bit(left_N, token)
    if left_N.any():
        mask_N[:] = left_N
