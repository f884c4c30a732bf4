"""Counts the tokens of an answer's thought, its tags among them."""

from array import array
from collections.abc import Sequence

from services.gateway.http.answers.logprobs import Spell
from services.gateway.prompts.thought import CLOSE, OPEN


class ThoughtTokens:
    """Follows the tokens of one choice; a character that is cut between tokens counts with the one that ends it."""

    def __init__(self, spell: Spell) -> None:
        """No token has come."""
        self._spell = spell
        self._sizes = array("I")
        self._text = bytearray()
        self._bytes = 0
        self._end: int | None = None

    def push(self, token_ids: Sequence[int]) -> None:
        """More tokens; those behind the end of the thought cost nothing."""
        if self._end is not None:
            return
        for token in token_ids:
            piece = self._spell(token)[1]
            self._sizes.append(len(piece))
            self._text += piece
        at = self._text.find(CLOSE.encode())
        if at >= 0:
            self._end = self._bytes + at + len(CLOSE)
        gone = max(len(self._text) - len(CLOSE) + 1, 0)
        del self._text[:gone]
        self._bytes += gone

    def count(self, thought: str, alone: bool) -> int:
        """Tokens of the thought, whose text without tags this is; `alone` when nothing but it came."""
        if not thought:
            return 0
        end = len(thought.encode()) + len(OPEN) if self._end is None else self._end
        if self._end is None and alone:
            return len(self._sizes)
        total = 0
        for index, size in enumerate(self._sizes):
            if total >= end:
                return index
            total += size
        return len(self._sizes)
