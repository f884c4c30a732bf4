"""One request's way through its grammar: which tokens may follow its output, and each of its drafts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from services.common.request.grammar import Grammar

Array = NDArray[Any]
_WORD = 32


class Walker:
    """Holds a matcher that has seen the committed output, without a thought before it.

    Drafts are walked and taken back, so masks are a function of the output and of the drafts before a row alone.
    """

    def __init__(self, grammar: Grammar, output: Sequence[int] = ()) -> None:
        """Begins behind what was committed, also elsewhere."""
        thought = grammar.rule.thought
        self._grammar, self._thought = grammar, thought
        self._matcher = grammar.matcher()
        self._seen: list[int] = []
        self._thinks = thought is not None and thought.begun
        self._may_think = thought is not None and not thought.begun
        self.commit(output)

    def commit(self, tokens: Sequence[int]) -> None:
        """Moves behind tokens that were chosen by the masks."""
        for token in tokens:
            was, self._may_think = self._may_think, False
            if self._thinks or (was and self._opens(token)):
                self._thinks = not self._closes(token)
            elif token not in self._grammar.eos_ids:
                self._matcher.consume_token(token)
                self._seen.append(token)

    def fill(self, masks_WN: Array, drafts: Sequence[int]) -> int:
        """Writes the masks of rows behind 0, 1, ... drafts, as far as the grammar allows these.

        A mask without a bit ends the request: the library gave up at it.

        Returns:
            How many drafts it allows, at most one fewer than there are rows.
        """
        row, thinks, may_think = 0, self._thinks, self._may_think
        if may_think and self._thought is not None:
            if not (drafts and self._opens(drafts[0]) and len(masks_WN) > 1):
                walked = self._walk(masks_WN, drafts)
                _set(masks_WN[0], self._thought.opening)
                return walked
            self._walk(masks_WN[:1], ())
            _set(masks_WN[0], self._thought.opening)
            row, thinks = 1, True
        while thinks:
            masks_WN[row] = -1
            for token in self._grammar.eos_ids:
                _clear(masks_WN[row], token)
            if row == min(len(drafts), len(masks_WN) - 1) or drafts[row] in self._grammar.eos_ids:
                return row
            thinks = not self._closes(drafts[row])
            row += 1
        return row + self._walk(masks_WN[row:], drafts[row:])

    def _walk(self, masks_WN: Array, drafts: Sequence[int]) -> int:
        """The same for rows within the grammar."""
        walked = 0
        while True:
            _compute(self._matcher, masks_WN[walked])
            if self._matcher.is_error():
                return self._give_up(masks_WN[walked], walked)
            if walked == min(len(drafts), len(masks_WN) - 1) or drafts[walked] in self._grammar.eos_ids:
                break
            if not self._matcher.try_consume_tokens([drafts[walked]]):
                break
            walked += 1
        if walked:
            self._matcher.rollback(walked)
        return walked

    def _give_up(self, mask_N: Array, walked: int) -> int:
        """The library never leaves an error. One behind drafts is not the request's: it must not change the text."""
        mask_N[:] = 0
        if walked:
            self._matcher = self._grammar.matcher()
            self._matcher.consume_tokens(self._seen)
        return max(walked - 1, 0)

    def _opens(self, token: int) -> bool:
        return self._thought is not None and token == self._thought.opening

    def _closes(self, token: int) -> bool:
        return self._thought is not None and token == self._thought.closing


def _compute(matcher: LLMatcher, mask_N: Array) -> None:
    matcher.unsafe_compute_mask_ptr(mask_N.ctypes.data, mask_N.nbytes)


def _set(mask_N: Array, token: int) -> None:
    mask_N.view(np.uint32)[token // _WORD] |= np.uint32(1 << token % _WORD)


def _clear(mask_N: Array, token: int) -> None:
    mask_N.view(np.uint32)[token // _WORD] &= np.uint32(~(1 << token % _WORD) & 0xFFFFFFFF)


def without(mask_N: Array, tokens: Sequence[int]) -> None:
    """Takes tokens from a mask, unless they are all that it allows."""
    left_N = mask_N.copy()
    for token in tokens:
        _clear(left_N, token)
    if left_N.any():
        mask_N[:] = left_N
